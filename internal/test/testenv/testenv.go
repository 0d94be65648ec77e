// Package testenv says what a test may count on: which programs of the machine, and how much of its
// time; and it makes sure that a test leaves no goroutine behind.
//
// A test that needs a program skips on a laptop without it, and fails where the
// environment promises the program: JOBSHAPER_REQUIRE=redis,ffmpeg in CI. So a
// green CI run never means "nothing was tested".
package testenv

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// RequireVar is the environment variable that lists, separated by commas, the
// names for which Need fails instead of skipping.
const RequireVar = "JOBSHAPER_REQUIRE"

// programs maps the name a test asks for to the commands that satisfy it, best first.
var programs = map[string][]string{
	"redis":    {"redis-server"},
	"ffmpeg":   {"ffmpeg"},
	"bash":     {"bash"},
	"zsh":      {"zsh"},
	"fish":     {"fish"},
	"chromium": {"chromium", "chromium-browser", "google-chrome", "chrome"},
}

// Need returns the path of the program called name, one of those above. Without it on PATH the test
// is skipped, or fails if RequireVar lists the name. Call it from the test's own goroutine.
func Need(t testing.TB, name string) string {
	t.Helper()
	path, err := Find(name)
	if err == nil {
		return path
	}
	if Required(name) {
		t.Fatalf("%v, and %s=%q promises it", err, RequireVar, os.Getenv(RequireVar))
	}
	t.Skipf("%v (add %s to %s to make this a failure)", err, name, RequireVar)
	return ""
}

// Find is Need without a test: the path of the program, or an error that names
// the commands that were looked for.
func Find(name string) (string, error) {
	commands, known := programs[name]
	if !known {
		return "", fmt.Errorf("testenv: unknown program %q: want one of %s", name, strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
	}
	for _, command := range commands {
		if path, err := exec.LookPath(command); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("testenv: no %s on PATH", strings.Join(commands, ", "))
}

// Required reports whether the environment promises the program called name.
func Required(name string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(RequireVar), ","), func(item string) bool {
		return strings.TrimSpace(item) == name
	})
}
