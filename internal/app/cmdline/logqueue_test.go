package cmdline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

const patience = 20 * time.Second

// moody is a writer whose disk may be full.
type moody struct {
	mu      sync.Mutex
	full    bool
	partly  int // how many bytes of a line it takes while it is full
	text    bytes.Buffer
	refused int
}

func (m *moody) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.full {
		return m.text.Write(p)
	}
	m.refused++
	n, _ := m.text.Write(p[:min(m.partly, len(p))])
	return n, errors.New("no space left on device")
}

func (m *moody) set(full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = full
}

func until(t *testing.T, what string, true_ func() bool) {
	t.Helper()
	for begun := time.Now(); !true_(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("never: %s", what)
		}
	}
}

// Lines that cannot be written are counted, and the first line after them tells how many.
func TestLogQueueTellsWhatWasLost(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		w := &moody{full: true, partly: 3}
		q, log, err := NewLogQueue(w, format, slog.LevelInfo)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			log.Info(fmt.Sprint("lost ", i))
		}
		until(t, "five are dropped", func() bool { return q.Dropped() == 5 })
		w.set(false)
		log.Info("works again")
		log.Info("the end")
		q.Stop()
		q.Stop()
		lines := strings.Split(strings.TrimSpace(w.text.String()), "\n")
		if n := len(lines); n < 4 || !strings.Contains(lines[n-3], "lines of this log could not be written") ||
			!strings.Contains(strings.ReplaceAll(lines[n-3], `"lines":5`, "lines=5"), "lines=5") ||
			!strings.Contains(lines[n-2], "works again") || !strings.Contains(lines[n-1], "the end") {
			t.Errorf("%s: %q", format, lines)
		}
	}
}

// Logging does not wait for a reader that does not read, Stop does not wait for ever, and memory is
// bounded.
func TestLogQueueDoesNotWait(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	q, log, err := NewLogQueue(w, "text", slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 1000)
	const lines = 4 * logQueueLines
	for range lines {
		log.Info(line)
	}
	if waiting := len(q.lines); waiting > logQueueLines || q.bytes.Load() > logQueueBytes {
		t.Errorf("%d lines with %d bytes wait", waiting, q.bytes.Load())
	}
	if n := q.Dropped(); n < lines/2 {
		t.Errorf("%d lines of %d were dropped, by a pipe that nobody reads", n, lines)
	}
	q.Stop()
	// With a reader, everything left arrives, and the goroutine ends.
	read := make(chan int)
	go func() {
		b, _ := io.ReadAll(r)
		read <- bytes.Count(b, []byte("\n"))
	}()
	select {
	case <-q.done:
	case <-time.After(patience):
		t.Fatal("the goroutine never ended")
	}
	w.Close()
	if got := <-read; uint64(got) < lines-q.Dropped() { // and notices
		t.Errorf("%d lines arrived, want %d", got, lines-q.Dropped())
	}
}
