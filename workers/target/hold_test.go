//go:build linux

package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// heldChildren returns the pids of this process's children that are held: traced, and stopped.
func heldChildren(t *testing.T) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		name, rest, _ := strings.Cut(string(text), ") ") // the name may hold anything
		f := strings.Fields(rest)
		if len(f) > 1 && f[0] == "t" && f[1] == strconv.Itoa(os.Getpid()) {
			pid, _ := strconv.Atoi(name[:strings.Index(name, " ")])
			pids = append(pids, pid)
		}
	}
	return pids
}

// ended reports whether a process has ended, and was waited for.
func ended(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ") // or whoever should wait for it does not
}

// Each program has been loaded before its slot, and its first instruction comes after it.
func TestExecStartsInItsSlot(t *testing.T) {
	h := newExecTest(t, ExecConfig{Argv: []string{"date", "+%s%N"}})
	p := newPool(t, h, 10, 80*time.Millisecond)
	seen := 0
	longest := hesitant(t)
	ids := p.offer(10)
	eventuallyTrue(t, "a program waits for its slot", func() bool { seen = len(heldChildren(t)); return seen > 0 })
	var began []time.Time
	for i, id := range ids {
		job := p.done(id)
		ns, err := strconv.ParseInt(strings.TrimSpace(string(job.Result)), 10, 64)
		p.must(err)
		began = append(began, time.Unix(0, ns))
		late := began[i].Sub(job.Slot)
		if late < 0 {
			t.Errorf("job %d began %v before its slot", i, -late)
		}
		t.Logf("job %d began %v after its slot", i, late)
	}
	slices.SortFunc(began, time.Time.Compare) // one that misses its slot is overtaken
	for i, least := 1, 75*time.Millisecond-longest(); i < len(began); i++ {
		if gap := began[i].Sub(began[i-1]); gap < least {
			t.Errorf("a job began %v after the one before, want at least %v", gap, least)
		}
	}
}

// A program that is held when its start is called off never runs, and nothing of it is left.
func TestExecCalledOff(t *testing.T) {
	testenv.Long(t, "takes more than 3 s")
	for how, callOff := range callOffs {
		t.Run(how, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "ran")
			h := newExecTest(t, ExecConfig{Argv: sh(`echo $SHAPER_JOB_ID >>$1`, file)})
			p := newPool(t, h, 2, longLead)
			ids := p.offer(2)
			p.done(ids[0])
			p.granted()
			p.granted()
			var held []int
			eventuallyTrue(t, "the second program is held", func() bool { held = heldChildren(t); return len(held) == 1 })
			callOff(p, ids[1])
			eventuallyTrue(t, "the start is over", func() bool { return p.ahead.Load() == 0 })
			if !ended(held[0]) {
				t.Errorf("process %d is left", held[0])
			}
			ran, err := os.ReadFile(file)
			p.must(err)
			if want := ids[0] + "\n"; string(ran) != want {
				t.Errorf("ran %q, want %q", ran, want)
			}
		})
	}
}

// A worker that is killed takes a program that is held with it, before it has run.
func TestExecHeldDiesWithTheWorker(t *testing.T) {
	const variable = "TEST_EXECTARGET_HELD"
	if file := os.Getenv(variable); file != "" { // we are the worker
		cmd := &exec.Cmd{Path: "/bin/sh", Args: sh(`echo ran >$1`, file)}
		_, err := runGroup(t.Context(), cmd, time.Second, func() error {
			fmt.Fprintln(os.Stderr, cmd.Process.Pid)
			select {}
		})
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ran")
	worker := exec.Command(os.Args[0], "-test.run=^TestExecHeldDiesWithTheWorker$")
	worker.Env = append(os.Environ(), variable+"="+file)
	said, err := worker.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanln(said, &pid); err != nil {
		t.Fatal(err)
	}
	if ended(pid) {
		t.Fatalf("process %d is not held", pid)
	}
	worker.Process.Kill()
	worker.Wait()
	eventuallyTrue(t, "the program's death", func() bool { return ended(pid) })
	if _, err := os.Stat(file); err == nil {
		t.Error("the program ran")
	}
}

// What a gate says decides whether a program runs, also if it panics.
func TestExecGate(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		gate func() error
		want error
		runs bool
	}{
		"open":   {func() error { return nil }, nil, true},
		"closed": {func() error { return refused }, refused, false},
		"panics": {func() error { panic(refused) }, refused, false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "ran")
			cmd := &exec.Cmd{Path: "/bin/sh", Args: sh(`echo ran >$1`, file)}
			var err error
			func() {
				defer func() {
					if r := recover(); r != nil {
						err = r.(error)
					}
				}()
				_, err = runGroup(context.Background(), cmd, time.Second, tc.gate)
			}()
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if _, err := os.Stat(file); (err == nil) != tc.runs {
				t.Errorf("ran: %v, want %v", err == nil, tc.runs)
			}
			if !ended(cmd.Process.Pid) || len(heldChildren(t)) > 0 {
				t.Error("it is left")
			}
		})
	}
}

// A command that gains rights by its exec would not gain them if it were traced.
func TestExecDoesNotHoldWhatGainsRights(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if !holdable(tool) {
		t.Error("a plain command is not held")
	}
	if err := os.Chmod(tool, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if holdable(tool) {
		t.Error("a setuid command is held")
	}
}

// A command that is away in its slot, or that cannot be held, fails or runs as one that was not made
// ready.
func TestExecVanishedInAPool(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool")
	p := (*pool)(nil)
	if err := os.Symlink("/bin/sh", path); err != nil {
		t.Fatal(err)
	}
	h := newExecTest(t, ExecConfig{Argv: []string{path, "-c", "exit 0"}})
	os.Remove(path)
	p = newPool(t, h, 50, 0)
	id := p.offer(1)[0]
	eventuallyTrue(t, "an attempt fails", func() bool {
		job, err := p.queue.Find(t.Context(), "a", id)
		p.must(err)
		return strings.Contains(job.Error, path)
	})
	p.must(os.Symlink("/bin/sh", path))
	p.done(id)
}
