//go:build unix

package target

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// lifeline is a pipe with a name. Processes that a script starts after "exec 3>$1" hold its write
// end, so that a read of the other one tells when the first of them lives, and when the last of
// them is dead.
type lifeline struct {
	path  string
	lines chan string
}

func newLifeline(t *testing.T) *lifeline {
	t.Helper()
	l := &lifeline{path: filepath.Join(t.TempDir(), "life"), lines: make(chan string, 1)}
	if err := syscall.Mkfifo(l.path, 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// watch calls alive once a process has written its line, and closes the channel that it returns
// when all are dead.
func (l *lifeline) watch(t *testing.T, alive func(line string)) (dead <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f, err := os.Open(l.path) // waits for a writer
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		buf := make([]byte, 64)
		n, _ := f.Read(buf)
		alive(strings.TrimSpace(string(buf[:n])))
		io.Copy(io.Discard, f)
	}()
	return done
}

// eventually waits for an event that is due at once; the limit only keeps a failure from hanging.
func eventually(t *testing.T, what string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(testenv.Patience):
		t.Fatalf("%s: not after %v", what, testenv.Patience)
	}
}

func TestExecEndsTheWholeGroup(t *testing.T) {
	const hour = time.Hour
	for _, tc := range []struct {
		name, script string
		cause        error
		killDelay    time.Duration
	}{
		// Where KillDelay is an hour, returning at all shows that it was not waited for.
		{"SIGTERM suffices", `exec 3>$1; sleep 1000 & echo up >&3; wait`, context.DeadlineExceeded, hour},
		{"exit 0 on SIGTERM is no success", `exec 3>$1; trap 'exit 0' TERM; sleep 1000 & echo up >&3; wait`, shaper.ErrStopping, hour},
		{"the leader ends, a child ignores SIGTERM", `exec 3>$1; (trap '' TERM; echo up >&3; sleep 1000; sleep 1000) & wait`, shaper.ErrCancelled, hour},
		{"all ignore SIGTERM", `trap '' TERM; exec 3>$1; sleep 1000 & echo up >&3; sleep 1000; sleep 1000`, context.DeadlineExceeded, 10 * time.Millisecond},
		{"a lost lease leaves no time", `trap '' TERM; exec 3>$1; sleep 1000 & echo up >&3; sleep 1000; sleep 1000`, shaper.ErrLeaseLost, hour},
		{"all are stopped", `exec 3>$1; sleep 1000 & echo up >&3; kill -STOP 0`, context.DeadlineExceeded, 10 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			life := newLifeline(t)
			h := newExecTest(t, ExecConfig{Argv: sh(tc.script, life.path), KillDelay: tc.killDelay})
			ctx, cancel := context.WithCancelCause(testContext(t))
			dead := life.watch(t, func(string) { cancel(tc.cause) })
			err := h.ProcessTask(ctx, asynq.NewTask("x", nil))
			if !errors.Is(err, tc.cause) || errors.Is(err, asynq.SkipRetry) {
				t.Errorf("got %v, want %v", err, tc.cause)
			}
			eventually(t, "everybody's death", dead)
		})
	}
}

// A command that leaves children behind has ended all the same, and they end with it.
func TestExecKillsWhatIsLeft(t *testing.T) {
	life := newLifeline(t)
	h := newExecTest(t, ExecConfig{Argv: sh(`exec 3>$1; (trap '' TERM HUP; sleep 1000; sleep 1000) & echo up >&3; echo out`, life.path)})
	dead := life.watch(t, func(string) {})
	ctx := testContext(t)
	if err := h.ProcessTask(ctx, asynq.NewTask("x", nil)); err != nil || string(workers.ResultFrom(ctx)) != "out\n" {
		t.Errorf("got %v, result %q", err, workers.ResultFrom(ctx))
	}
	eventually(t, "everybody's death", dead)
}

// A process that leaves the group escapes, with the pipes of its parent, but the job does not wait
// for it.
func TestExecIsNotHeldByADaemon(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip(err)
	}
	life := newLifeline(t)
	h := newExecTest(t, ExecConfig{Argv: sh(`exec 3>$1; setsid sh -c 'echo $$ >&3; exec sleep 1000' & read line <$2; echo out`, life.path, life.path+"2")})
	if err := syscall.Mkfifo(life.path+"2", 0o600); err != nil {
		t.Fatal(err)
	}
	pid := 0
	dead := life.watch(t, func(line string) {
		pid, _ = strconv.Atoi(line)
		os.WriteFile(life.path+"2", []byte("go\n"), 0) // the daemon has left the group: the leader may go
	})
	ctx := testContext(t)
	if err := h.ProcessTask(ctx, asynq.NewTask("x", make([]byte, 1<<20))); err != nil || string(workers.ResultFrom(ctx)) != "out\n" {
		t.Errorf("got %v, result %q", err, workers.ResultFrom(ctx))
	}
	select {
	case <-dead:
		t.Error("the daemon died, so this test shows nothing")
	default:
		syscall.Kill(pid, syscall.SIGKILL)
		eventually(t, "the daemon's death", dead)
	}
}

func TestExecStartsNothingTooLate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made")
	h := newExecTest(t, ExecConfig{Argv: []string{"touch", file}})
	ctx, cancel := context.WithCancelCause(testContext(t))
	cancel(shaper.ErrLeaseLost)
	if err := h.ProcessTask(ctx, asynq.NewTask("x", nil)); !errors.Is(err, shaper.ErrLeaseLost) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command ran")
	}
}

// A worker that is killed takes its commands with it.
func TestExecDiesWithTheWorker(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Pdeathsig")
	}
	const lifeVar = "TEST_EXECTARGET_LIFELINE"
	if path := os.Getenv(lifeVar); path != "" { // we are the worker
		h := newExecTest(t, ExecConfig{Argv: sh(`trap '' TERM HUP; exec 3>$1; echo up >&3; read forever <$1`, path)})
		t.Fatal(h.ProcessTask(testContext(t), asynq.NewTask("x", nil)))
	}
	life := newLifeline(t)
	worker := exec.Command(os.Args[0], "-test.run=^TestExecDiesWithTheWorker$")
	worker.Env = append(os.Environ(), lifeVar+"="+life.path)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	dead := life.watch(t, func(string) { worker.Process.Kill() })
	worker.Wait()
	eventually(t, "the command's death", dead)
}
