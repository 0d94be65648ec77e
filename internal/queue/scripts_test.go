package queue

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/crashpoint"
)

// A script without crash points would be left out of the tests that kill processes at every point.
func TestScriptsHaveCrashPoints(t *testing.T) {
	points := crashpoint.Points()
	for name, s := range Scripts {
		if !slices.Contains(points, name+".before") || !slices.Contains(points, name+".after") {
			t.Errorf("script %s has no crash points: add it to package crashpoint", name)
		}
		if len(s.Hash()) != 40 {
			t.Errorf("script %s has hash %q", name, s.Hash())
		}
	}
	if len(Scripts) == 0 {
		t.Error("no scripts")
	}
}

// TestMain defines the scripts. What they know of policies comes from package shaper, whose tests
// run them with it; here a stand-in defines the same names.
func TestMain(m *testing.M) {
	Define("local function fallback(field) end\nlocal function tenant_policy() end\nlocal function downstream_policy() end\nlocal function is_rate() end\nlocal POLICY_WORDS = {}\nlocal function policy_words() end\n")
	os.Exit(m.Run())
}

// A program that does not import package shaper is told to by the first queue that it opens.
func TestOpenWantsScripts(t *testing.T) {
	defined := EnqueueScript.Script
	EnqueueScript.Script = nil
	defer func() {
		EnqueueScript.Script = defined
		if said := fmt.Sprint(recover()); !strings.Contains(said, "import package shaper") {
			t.Errorf("it says %q", said)
		}
	}()
	Open(nil, "d")
}

// A ticket is read only if its names are valid, and the error is brief.
func TestTicketsAreChecked(t *testing.T) {
	if k, err := ParseTicket("a b 7"); err != nil || k != (Ticket{"a", "b", 7}) {
		t.Errorf("%+v, %v", k, err)
	}
	for _, name := range []string{"", "a}b", "*", "a:b", "a\n", "\xff", strings.Repeat("x", 65), strings.Repeat("x", 1<<20)} {
		for _, text := range []string{name + " id 1", "a " + name + " 1", "a id " + name, name} {
			if _, err := ParseTicket(text); err == nil || len(err.Error()) > 500 {
				t.Errorf("%.20q: %v", text, err)
			}
		}
	}
}
