//go:build !race

package e2e

const raced = false // this binary does not have the race detector
