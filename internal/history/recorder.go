package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// Recorder appends events to a file. Any number of them, in any number of processes, may share one
// file. It is safe for concurrent use.
type Recorder struct {
	file *os.File
	pid  int
}

// Open returns a Recorder on a file, which is created if it does not exist. The caller must close
// it.
func Open(path string) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	return &Recorder{file: f, pid: os.Getpid()}, nil
}

// Record appends an event. Where the caller gives none, its clocks are read first, and its process
// is this one.
func (r *Recorder) Record(e Event) error {
	if e.At == 0 {
		e.At, e.Wall = Now(), time.Now().UnixMicro()
	}
	if e.PID == 0 {
		e.PID = r.pid
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("record %s: %w", e.Kind, err)
	}
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("record %s: %w", e.Kind, err)
	}
	return nil
}

// Close closes the file. What was recorded is in the system's hands already.
func (r *Recorder) Close() error { return r.file.Close() }

// Read returns what was recorded in a file so far, in the order of the clock.
func Read(path string) (History, error) {
	var r Reader
	if err := r.Open(path); err != nil {
		return nil, err
	}
	defer r.Close()
	return r.More()
}

// Reader reads a history that grows. A line that is not an event is an error: lines are written
// whole, so a broken one is not ours. The zero value is ready to Open. It is for one goroutine.
type Reader struct {
	file  *os.File
	line  int
	part  []byte // the beginning of a line whose end has not been seen yet
	whole History
}

// Open opens a file that exists. The caller must close the Reader.
func (r *Reader) Open(path string) (err error) {
	if r.file, err = os.Open(path); err != nil {
		return fmt.Errorf("read history: %w", err)
	}
	return nil
}

// More reads on, and returns all that it has read since Open, in the order of the clock.
func (r *Reader) More() (History, error) {
	more, err := r.Next()
	if err != nil {
		return nil, err
	}
	if len(more) > 0 { // most callers who wait ask again before there is more
		r.whole = append(r.whole, more...)
		r.whole.sort()
	}
	return slices.Clone(r.whole), nil
}

// Next reads on, and returns what was written since it, or More, was called before, in the order in
// which it was written.
func (r *Reader) Next() (History, error) {
	var h History
	err := r.each(func([]byte) bool { return true }, func(e Event) { h = append(h, e) })
	return h, err
}

// each reads on, and calls do for those events whose lines are wanted.
func (r *Reader) each(want func(line []byte) bool, do func(Event)) error {
	in := bufio.NewReaderSize(r.file, 64<<10)
	for {
		piece, err := in.ReadBytes('\n')
		if err == io.EOF {
			r.part = append(r.part, piece...)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read history: %w", err)
		}
		line := piece
		if len(r.part) > 0 {
			line = append(r.part, piece...)
			r.part = nil
		}
		r.line++
		if !want(line) {
			continue
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read history: %s:%d: %w", r.file.Name(), r.line, err)
		}
		do(e)
	}
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }
