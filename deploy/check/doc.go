// Package check reads the deployment files as Docker does and tests that they keep what the
// shaper promises: Redis may not evict and writes its log, nothing listens beyond the loopback,
// images are pinned, nothing runs as root. It needs no engine. It also tests that each dependency
// of the product has its reason in docs/dependencies.md.
//
// It is a module of its own, so that the parsers are no dependency of the product.
package check
