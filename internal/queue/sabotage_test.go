package queue

import (
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/sabotage"
)

// What `make sabotage` breaks is still there to be broken.
func TestSabotageFits(t *testing.T) {
	names := map[string]bool{}
	for _, b := range sabotage.Breaks() {
		names[b.Name] = true
		src := luaSource(t, b.File)
		if broken := b.Apply([]byte(src)); string(broken) == src {
			t.Errorf("%s breaks nothing", b.Name)
		}
	}
	for _, name := range []string{"runid", "hold", "token", "replay", "bound", "lost"} {
		if !names[name] {
			t.Errorf("nothing breaks %s", name)
		}
	}
}
