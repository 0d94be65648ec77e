package history

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRecordSurvivesAndDoesNotMix has several processes write into one file at once, and kills one
// of them.
func TestRecordSurvivesAndDoesNotMix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	if to := os.Getenv("HISTORY_WRITE_TO"); to != "" {
		writeUntilKilled(t, to)
		return
	}
	var writers []*exec.Cmd
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRecordSurvivesAndDoesNotMix$")
		cmd.Env = append(os.Environ(), "HISTORY_WRITE_TO="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		if _, err := out.Read(make([]byte, 1)); err != nil { // it writes now
			t.Fatal(err)
		}
		writers = append(writers, cmd)
	}
	for _, w := range writers {
		w.Process.Kill()
		w.Wait()
	}
	h, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	last := map[int]int{}
	for i, e := range h {
		if e.Attempt != last[e.PID]+1 {
			t.Fatalf("process %d: event %d follows %d", e.PID, e.Attempt, last[e.PID])
		}
		last[e.PID] = e.Attempt
		if i > 0 && e.At < h[i-1].At {
			t.Fatalf("event %d is earlier than the one before", i)
		}
	}
	for _, w := range writers {
		if last[w.Process.Pid] < 100 {
			t.Errorf("process %d left %d events, want the 100 that it spoke of, or more", w.Process.Pid, last[w.Process.Pid])
		}
	}
}

func writeUntilKilled(t *testing.T, path string) {
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for n, begun := 1, time.Now(); time.Since(begun) < time.Minute; n++ { // in case nobody is left to kill it
		if err := r.Record(Event{Kind: Start, Tenant: "a", ID: strings.Repeat("x", n%200), Attempt: n}); err != nil {
			t.Fatal(err)
		}
		if n == 100 {
			fmt.Println("a hundred")
		}
	}
}

func TestReadRefusesWhatIsNoEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	if _, err := Read(path); err == nil {
		t.Error("no error without a file")
	}
	if err := os.WriteFile(path, []byte("{\"kind\":\"offer\"}\nkind: start\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "history:2:") {
		t.Errorf("got %v, want an error about line 2", err)
	}
}

func TestReaderReadsOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var r Reader
	if err := r.Open(path); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, step := range []struct {
		write string
		want  string // the ids that More returns
	}{
		{"", ""},
		{`{"at":2,"id":"two"}` + "\n" + `{"at":3,`, "two"},
		{`"id":"three"}` + "\n", "two three"},
		{`{"at":1,"id":"one"}` + "\n", "one two three"}, // its writer was held up between clock and file
	} {
		if _, err := file.WriteString(step.write); err != nil {
			t.Fatal(err)
		}
		h, err := r.More()
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, e := range h {
			ids = append(ids, e.ID)
		}
		if got := strings.Join(ids, " "); got != step.want {
			t.Errorf("after %q: %q, want %q", step.write, got, step.want)
		}
	}
}
