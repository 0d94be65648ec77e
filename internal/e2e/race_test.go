//go:build race

package e2e

const raced = true // this binary has the race detector
