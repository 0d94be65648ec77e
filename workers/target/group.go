//go:build unix

package target

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/jobshaper/jobshaper/shaper"
)

const execSupported = true

// pipeGrace is how long, after a command has exited, its output is read from a process that left
// the group and kept the pipes. Output already written by the command itself is read in any case.
const pipeGrace = time.Second

// errNotHeld says that a command could not be held until its slot.
var errNotHeld = errors.New("command cannot be held")

// runGroup runs cmd as the leader of a process group and returns when it has exited and nothing of
// the group is left. When ctx ends before that, the group is ended and interrupted is true. An
// error says that cmd did not run; how it ended is in cmd.ProcessState.
//
// With a gate, cmd is started at once, up to its first instruction, and held there until the gate
// returns. If that returns an error cmd never runs, and is gone when runGroup returns the same error.
func runGroup(ctx context.Context, cmd *exec.Cmd, killDelay time.Duration, gate func() error) (interrupted bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	// Pdeathsig fires when the thread that started the command dies, not the process. If the thread
	// were given back, a goroutine that locks it and ends could end it too. Waiting blocks a thread
	// anyway: keep this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd.SysProcAttr = groupAttr()
	cmd.WaitDelay = pipeGrace
	if gate == nil {
		err = cmd.Start()
	} else {
		err = startThrough(gate, cmd)
	}
	if err != nil {
		return false, err
	}
	g := &group{id: cmd.Process.Pid}
	exited := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { g.end(context.Cause(ctx), killDelay, exited) })
	leaderGone := sync.OnceFunc(func() {
		interrupted = !stop()
		close(exited)
		g.retire()
	})
	// The leader stays a zombie while the rest is killed, so that its id, which is also the
	// group's, cannot be reused before that is done.
	if awaitExit(cmd.Process.Pid) {
		leaderGone()
	}
	err = cmd.Wait()
	leaderGone()
	if cmd.ProcessState == nil {
		return interrupted, err
	}
	// Errors of copying do not concern the job: it may close its stdin unread, and a stranger may
	// keep its stdout.
	return interrupted, nil
}

// startThrough starts cmd, and lets it run once the gate returns.
func startThrough(gate func() error, cmd *exec.Cmd) error {
	if err := startHeld(cmd); err != nil {
		return err
	}
	gone := true
	defer func() {
		if gone { // after a panic in the gate, too
			killHeld(cmd)
		}
	}()
	if err := gate(); err != nil {
		return err
	}
	if err := letGo(cmd); err != nil {
		return fmt.Errorf("let go: %w", err) // somebody killed it
	}
	gone = false
	return nil
}

// killHeld ends a command that is held, and waits for it.
func killHeld(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait() // it says "killed"
}

// group is the process group of one command.
type group struct {
	mu sync.Mutex
	id int // the leader's pid; 0 once retired, when the number may belong to somebody else
}

// end makes the group end for the given cause; exited is closed once the leader is gone.
func (g *group) end(cause error, killDelay time.Duration, exited <-chan struct{}) {
	if !errors.Is(cause, shaper.ErrLeaseLost) {
		g.signal(syscall.SIGTERM)
		timer := time.NewTimer(killDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-exited:
		}
	}
	g.signal(syscall.SIGKILL)
}

func (g *group) signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.id > 0 {
		_ = syscall.Kill(-g.id, sig) // the only error, ESRCH, says that nobody is left
	}
}

// retire kills what is left of the group and forgets its number.
func (g *group) retire() {
	g.signal(syscall.SIGKILL)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.id = 0
}
