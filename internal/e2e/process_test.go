package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
)

// patience bounds every wait of these tests. Only a broken system reaches it.
const patience = 60 * time.Second

// process is this binary, started again in a role. Its methods belong to the test's goroutine.
type process struct {
	rig    *rig
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr string // file
	ended  bool
}

// start starts a process and waits until it is ready.
func (r *rig) start(role role) *process {
	return r.startAll(role)[0]
}

// startAll starts processes at the same time and waits until all are ready.
func (r *rig) startAll(roles ...role) []*process {
	r.t.Helper()
	var all []*process
	var outs []*bufio.Reader
	for _, role := range roles {
		role.Redis, role.Downstream, role.History = r.url, r.name, r.path
		text, err := json.Marshal(role)
		r.must(err)
		p := &process{rig: r, cmd: exec.Command(os.Args[0])}
		p.cmd.Env = append(os.Environ(), processVar+"="+string(text))
		stderr, err := os.CreateTemp(r.t.TempDir(), "stderr")
		r.must(err)
		p.stderr, p.cmd.Stderr = stderr.Name(), stderr
		p.stdin, err = p.cmd.StdinPipe()
		r.must(err)
		stdout, err := p.cmd.StdoutPipe()
		r.must(err)
		r.must(p.cmd.Start())
		stderr.Close()
		r.t.Cleanup(p.cleanup)
		all, outs = append(all, p), append(outs, bufio.NewReader(stdout))
	}
	for i, out := range outs {
		if line, err := out.ReadString('\n'); line != "ready\n" {
			r.t.Fatalf("process %d said %q (%v), want ready", all[i].pid(), line, err)
		}
	}
	return all
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process with SIGKILL and waits for it.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
	p.ended = true
	p.cut()
}

// stop freezes the process, until it is sent SIGCONT, for so long that it counts as gone.
func (p *process) stop() {
	p.rig.t.Helper()
	p.signal(syscall.SIGSTOP)
	p.cut()
}

// cut writes down that the process has been cut off. Only then does nothing that it starts come after the event.
func (p *process) cut() {
	p.rig.must(p.rig.rec.Record(history.Event{Kind: history.Cut, PID: p.pid()}))
}

// terminate sends SIGTERM. end waits for the effect.
func (p *process) terminate() { p.signal(syscall.SIGTERM) }

// end waits until the process has ended by itself.
func (p *process) end() {
	p.rig.t.Helper()
	stuck := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
	defer stuck.Stop()
	p.ended = true
	if err := p.cmd.Wait(); err != nil {
		p.rig.t.Errorf("process %d: %v", p.pid(), err)
	}
}

// freeze stops the process for d, as a starved machine does.
func (p *process) freeze(d time.Duration) {
	p.signal(syscall.SIGSTOP)
	time.Sleep(d)
	p.signal(syscall.SIGCONT)
}

func (p *process) signal(s syscall.Signal) {
	p.rig.t.Helper()
	p.rig.must(p.cmd.Process.Signal(s))
}

// cleanup ends what still runs, and shows what it had to say if the test failed.
func (p *process) cleanup() {
	if !p.ended {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
	p.stdin.Close()
	if text, err := os.ReadFile(p.stderr); err == nil && p.rig.t.Failed() && len(text) > 0 {
		p.rig.t.Logf("process %d (%s):\n%s", p.pid(), filepath.Base(p.stderr), tail(text, 8<<10))
	}
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

var both = role{Scheduler: true, Worker: true}

// startBoth starts n daemons that schedule and work.
func (r *rig) startBoth(n int) []*process {
	r.t.Helper()
	return r.startAll(slices.Repeat([]role{both}, n)...)
}
