//go:build !unix || aix

package history

import "time"

// Now returns the wall clock in ns, where there is no monotonic one that processes share.
func Now() int64 { return time.Now().UnixNano() }
