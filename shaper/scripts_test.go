package shaper

import (
	"slices"
	"testing"

	"github.com/jobshaper/jobshaper/internal/crashpoint"
)

// TestScriptsHaveCrashPoints: a script without them would be left out where processes are killed at every point.
func TestScriptsHaveCrashPoints(t *testing.T) {
	points := crashpoint.Points()
	for name, hash := range ScriptHashes() {
		if !slices.Contains(points, name+".before") || !slices.Contains(points, name+".after") {
			t.Errorf("script %s has no crash points: add it to package crashpoint", name)
		}
		if len(hash) != 40 {
			t.Errorf("script %s has hash %q", name, hash)
		}
	}
	if n := len(ScriptHashes()); n != len(luaScripts) || n == 0 {
		t.Errorf("%d names of %d scripts", n, len(luaScripts))
	}
}
