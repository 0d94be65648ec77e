//go:build !crashpoints

package crashpoint

import "testing"

// TestNothingHappensWithoutTheTag: a program built without the tag ignores the variable.
func TestNothingHappensWithoutTheTag(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Points() {
		if seen[p] || !known(p) {
			t.Errorf("point %s is there twice, or not known", p)
		}
		seen[p] = true
		t.Setenv(Env, p+":1")
		Hit(p)
	}
}
