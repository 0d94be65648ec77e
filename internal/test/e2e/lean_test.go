package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// lean is this test binary, built again when it is first needed: with crash points, and without the
// race detector, which takes several times the CPU. Processes run it unless they are checked for
// races, see role.
var lean leanProgram

// leanVar names the file where a run of tests within another one finds it.
const leanVar = "JOBSHAPER_E2E_LEAN"

type leanProgram struct {
	mu   sync.Mutex // guards what follows
	path string
	dir  string // to be removed with it
}

// built returns the path of the binary.
func (l *leanProgram) built(t *testing.T) string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		l.path = os.Getenv(leanVar)
	}
	if l.path != "" {
		return l.path
	}
	begun := time.Now()
	var err error
	if l.dir, err = os.MkdirTemp("", "jobshaper-e2e-"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(l.dir, "lean.test")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute) // for a machine that has built nothing yet
	defer cancel()
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-race=false", "-tags", "crashpoints", "-o", path, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	t.Logf("built in %v", time.Since(begun).Round(100*time.Millisecond))
	l.path = path
	return path
}

// ofProcesses is what a process runs that is not checked for races.
func (l *leanProgram) ofProcesses(t *testing.T) string {
	t.Helper()
	if !testenv.Race {
		return os.Args[0]
	}
	return l.built(t)
}

// known is the path of the binary; empty = nobody has needed it.
func (l *leanProgram) known() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.path
}

// remove removes what was built.
func (l *leanProgram) remove() {
	if l.dir != "" {
		_ = os.RemoveAll(l.dir) // it is where the system cleans up, too
	}
}
