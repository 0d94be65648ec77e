package cmd_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// patience bounds waits that only a broken system makes long.
const patience = 60 * time.Second

// program is one of the two programs that runs, in a folder and with a data folder of its own.
type program struct {
	*exec.Cmd
	t     *testing.T
	ended chan error
}

// command is a command line that has not started; stdout and stderr are not set.
func command(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SHAPER_DATA_DIR="+filepath.Join(dir, "data"), "TMPDIR="+dir)
	return cmd
}

// launch starts it; the test ends it.
func launch(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{cmd, t, make(chan error, 1)}
	go func() { p.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // it may have ended just now
		}
	})
	return p
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v: %v", s, err)
	}
}

// end waits until it ends by itself, with this exit code.
func (p *program) end(code int) {
	p.t.Helper()
	select {
	case err := <-p.ended:
		if got := p.ProcessState.ExitCode(); got != code {
			p.t.Fatalf("it ended by %v, want exit code %d", err, code)
		}
	case <-time.After(patience):
		p.t.Fatal("it did not end")
	}
}

// eventually waits until a command prints what matches.
func eventually(t *testing.T, pattern string, cmd func() *exec.Cmd) {
	t.Helper()
	var out []byte
	var err error
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(20 * time.Millisecond) {
		if out, err = cmd().Output(); err == nil && regexp.MustCompile(pattern).Match(out) {
			return
		}
	}
	t.Fatalf("%q never printed %s: %s (%v)", cmd().Args, pattern, out, err)
}

// A daemon goes on when its log reader and its terminal go away, and so do the commands that it
// runs; they hear of broken pipes as always.
func TestDaemonOutlivesItsLogReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := `sh -c 'kill -PIPE $$; echo a closed pipe does not end me'
: > begun
while ! test -e over; do sleep 0.02; done
echo ran to its end`
	if err := os.WriteFile(filepath.Join(dir, "job.sh"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, dir, "shaper", "run", "--exec", "sh job.sh", "--rate", "1000/s", "--listen", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	daemon := launch(t, cmd)
	url := ""
	for log := bufio.NewScanner(stderr); url == "" && log.Scan(); {
		_, url, _ = strings.Cut(log.Text(), "listening at ")
	}
	follow := command(t, dir, "enqueue", "--follow", "hello")
	var said bytes.Buffer
	follow.Stdout = &said
	job := launch(t, follow)
	eventually(t, "begun", func() *exec.Cmd { return exec.Command("ls", dir) })

	stderr.Close()
	dropped := func() bool {
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatalf("the daemon is gone: %v", err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^shaper_log_lines_dropped_total [1-9]`).Match(text)
	}
	for begun := time.Now(); !dropped(); time.Sleep(20 * time.Millisecond) {
		daemon.signal(syscall.SIGHUP) // which it logs
		if time.Since(begun) > patience {
			t.Fatal("no line was dropped")
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "over"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	job.end(0)
	if got := said.String(); !strings.Contains(got, "done: ran to its end") {
		t.Errorf("the job: %s", got)
	}
	if out, err := command(t, dir, "enqueue", "--follow", "hello").CombinedOutput(); err != nil {
		t.Errorf("another job: %s (%v)", out, err)
	}
	daemon.signal(syscall.SIGTERM)
	daemon.end(0)
}

// A daemon whose log nobody reads, or whose log's disk is full, does its work, and ends when it is
// told to or cannot go on.
func TestDaemonDoesNotWaitForItsLog(t *testing.T) {
	testenv.Long(t, "fills a pipe and a disk")
	t.Parallel()
	stuck := func(t *testing.T) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		for err == nil { // until there is no room for a byte
			if err = w.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err == nil {
				_, err = w.Write([]byte{'.'})
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return w
	}
	full := func(t *testing.T) *os.File {
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for name, log := range map[string]func(*testing.T) *os.File{"a pipe that nobody reads": stuck, "a full disk": full} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := command(t, dir, "shaper", "run", "--exec", "cat", "--rate", "1000/s", "--listen", "none")
			cmd.Stderr = log(t)
			daemon := launch(t, cmd)
			eventually(t, `"pools":1`, func() *exec.Cmd { return command(t, dir, "shaper", "stats", "--json") })
			if out, err := command(t, dir, "enqueue", "--follow", "hello", "world").CombinedOutput(); err != nil || !strings.Contains(string(out), "done: world") {
				t.Errorf("a job: %s (%v)", out, err)
			}
			daemon.signal(syscall.SIGHUP)
			daemon.signal(syscall.SIGTERM)
			daemon.end(0)

			cmd = command(t, dir, "shaper", "run", "--exec", "cat", "--redis", "redis://127.0.0.1:1")
			cmd.Stderr = log(t)
			launch(t, cmd).end(69)
		})
	}
}

// A demo that nobody watches any more ends, quietly, and leaves nothing.
func TestDemoEndsWithItsReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := command(t, dir, "shaper", "demo")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	demo := launch(t, cmd)
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	demo.end(141) // as when SIGPIPE ends a program
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 || stderr.Len() > 0 {
		t.Errorf("it left %v (%v), and said %q", files, err, stderr.String())
	}
}

// Without --listen a daemon with a store of its own listens at the default address, or says that it
// cannot and how to choose another.
func TestUsualAddress(t *testing.T) {
	const usual = "127.0.0.1:8080"
	dir := t.TempDir()
	cmd := command(t, dir, "shaper", "run", "--exec", "cat")
	stderr, w, err := os.Pipe() // not cmd.StderrPipe, which Wait closes while there may be something to read
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = w
	daemon, log := launch(t, cmd), ""
	w.Close()
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if log += lines.Text() + "\n"; strings.Contains(lines.Text(), "jobs leave at") { // it runs
			daemon.signal(syscall.SIGTERM)
		}
	}
	daemon.end(0)
	listens := strings.Contains(log, "listening at http://"+usual) && strings.Contains(log, "roles: scheduler,worker,api")
	taken := strings.Contains(log, "listen at "+usual) && strings.Contains(log, "see --listen") && strings.Contains(log, "roles: scheduler,worker\n")
	if listens == taken {
		t.Errorf("want it to listen at the default address, or to say that it is taken:\n%s", log)
	}
}
