//go:build race

package e2e

// raceEnabled tells whether this binary has the race detector.
const raceEnabled = true
