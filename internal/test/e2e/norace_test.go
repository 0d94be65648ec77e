//go:build !race

package e2e

// raceEnabled says whether this binary has the race detector.
const raceEnabled = false
