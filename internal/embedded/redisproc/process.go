// Package redisproc runs redis-server as a child process.
//
// A child has one owner, dies with this process where the system allows it
// (Linux), and is always waited for: no zombies, no server left behind. It sits
// in a process group of its own, so that Ctrl-C in a terminal reaches only the
// parent, which can then finish its work with the store still there.
package redisproc

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a redis-server child. Its methods may be called from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	log  *tail
	done chan struct{}
	err  error // how it ended; set before done is closed
}

// Start runs the redis-server at path with the given arguments. What the server
// prints goes to output (which may be nil), and its last lines go into errors.
// Start does not wait until the server answers: see Process.Ready.
func Start(path string, args []string, output io.Writer) (*Process, error) {
	log := &tail{next: output}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	// A server that is rewriting its file has a child that keeps our pipe open.
	cmd.WaitDelay = time.Second
	p := &Process{cmd: cmd, log: log, done: make(chan struct{})}

	started := make(chan error)
	go func() {
		// The parent-death signal is sent when the *thread* that forked ends. This
		// goroutine keeps its thread for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("redisproc: start %s: %w", path, err)
	}
	return p, nil
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed once the child has ended and been waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the child ended, with the last lines it printed. It is nil while
// the child runs and after a clean exit.
func (p *Process) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("redis-server (pid %d): %w%s", p.PID(), p.err, p.log.suffix())
}

// Signal sends a signal to the child. A child that has ended gets none, and the
// error is os.ErrProcessDone.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the child with SIGKILL and waits for it.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // an ended child is what we want
	<-p.done
}

// Stop asks the child to end (SIGTERM: the server flushes its append-only file)
// and waits; a child that has not ended after grace is killed, and Stop says so. It asks again and
// again: a server that is writing its first append-only file says that it cannot end, and forgets
// that it was asked.
func (p *Process) Stop(grace time.Duration) error {
	timer, again := time.NewTimer(grace), time.NewTicker(500*time.Millisecond)
	defer timer.Stop()
	defer again.Stop()
	for {
		_ = p.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
			return nil
		case <-again.C:
		case <-timer.C:
			p.Kill()
			return fmt.Errorf("redis-server (pid %d) did not end within %v of SIGTERM and was killed", p.PID(), grace)
		}
	}
}
