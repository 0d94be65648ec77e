package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jobshaper/jobshaper/internal/crashpoint"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

const patience = testenv.Patience

// process is this binary, or lean, started again in a role. Its methods belong to the test's
// goroutine.
type process struct {
	rig    *rig
	cmd    *exec.Cmd
	role   role
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr string // file
	ended  bool
	silent bool // it is one of many, and its output does not matter
}

// start starts a process and waits until it is ready.
func (r *rig) start(role role) *process {
	return r.startAll(role)[0]
}

// startAll starts processes at the same time and waits until all are ready.
func (r *rig) startAll(roles ...role) []*process {
	r.t.Helper()
	var all []*process
	for _, role := range roles {
		all = append(all, r.launch(role))
	}
	for _, p := range all {
		if line, err := p.stdout.ReadString('\n'); line != "ready\n" {
			r.t.Fatalf("process %d said %q (%v), want ready", p.pid(), line, err)
		}
	}
	return all
}

// launch starts a process, which may never be ready.
func (r *rig) launch(role role) *process {
	r.t.Helper()
	role = r.placed(role)
	text, err := json.Marshal(role)
	r.must(err)
	program := role.program
	switch {
	case role.checked:
		program = os.Args[0]
	case program == "":
		program = lean.ofProcesses(r.t)
	}
	p := &process{rig: r, role: role, cmd: exec.Command(program)}
	p.cmd.Env = append(os.Environ(), processVar+"="+string(text), crashpoint.Env+"="+role.crash)
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
	p.stdout = bufio.NewReader(stdout)
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process with SIGKILL and waits for it.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
	p.ended = true
	p.cut()
}

// stop freezes the process until it is sent SIGCONT, for so long that it counts as gone.
func (p *process) stop() {
	p.rig.t.Helper()
	p.signal(syscall.SIGSTOP)
	// On a busy machine its threads go on until the one that takes the signal has its turn.
	for begun := time.Now(); !stopped(p.pid()); time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			p.rig.t.Fatalf("process %d was sent SIGSTOP %v ago, and goes on", p.pid(), patience)
		}
	}
	p.cut()
}

// stopped tells whether a process was stopped, where the system can be asked; else it is believed.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ") // behind the name, which may hold anything
	return strings.HasPrefix(state, "T")
}

// goOn ends a stop.
func (p *process) goOn() {
	p.rig.t.Helper()
	p.rig.must(p.rig.rec.Record(history.Event{Kind: history.Go, PID: p.pid()}))
	p.signal(syscall.SIGCONT)
}

// goroutines asks the process how many it has.
func (p *process) goroutines() int {
	p.rig.t.Helper()
	_, err := io.WriteString(p.stdin, "?\n")
	p.rig.must(err)
	line, err := p.stdout.ReadString('\n')
	p.rig.must(err)
	n, err := strconv.Atoi(strings.TrimSpace(line))
	p.rig.must(err)
	return n
}

// resident returns how many bytes of memory the process holds; 0 if the system does not tell.
func (p *process) resident() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.pid()))
	if f := strings.Fields(string(text)); err == nil && len(f) > 1 {
		pages, _ := strconv.ParseInt(f[1], 10, 64)
		return pages * int64(os.Getpagesize())
	}
	return 0
}

// cut writes down that the process has been cut off. It must be called only once that is so: then
// nothing that the process starts comes after the event.
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
	if text, err := os.ReadFile(p.stderr); err == nil && bytes.Contains(text, []byte("WARNING: DATA RACE")) {
		p.silent = false
		p.rig.t.Errorf("process %d has a data race", p.pid())
	}
	if text, err := os.ReadFile(p.stderr); err == nil && p.rig.t.Failed() && len(text) > 0 && !p.silent {
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
