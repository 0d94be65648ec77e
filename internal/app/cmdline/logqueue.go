package cmdline

import (
	"bytes"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	logQueueLines = 4096            // that may wait to be written
	logQueueBytes = 1 << 20         // that those lines may have together
	logFlush      = 2 * time.Second // how long Stop waits for a reader
)

// LogQueue is a daemon's log. Logging never waits and never fails: lines are written in the
// background, and those that cannot be, because their reader is slow, the disk is full or nobody
// reads, are dropped and counted. Before the next line that can be written, a line says how many
// were lost.
//
// NewLogQueue starts the goroutine that writes; Stop ends it.
type LogQueue struct {
	w        io.Writer
	lines    chan []byte
	bytes    atomic.Int64  // of lines
	dropped  atomic.Uint64 // lines, ever
	lost     uint64        // what dropped was when it was last reported; of the goroutine
	broken   bool          // the last write ended within a line; of the goroutine
	notice   *slog.Logger  // writes to text
	text     bytes.Buffer  // of the goroutine
	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
}

// NewLogQueue returns a logger for --log-format, "text" for people or "json", that writes to w
// through a LogQueue.
func NewLogQueue(w io.Writer, format string, level slog.Level) (*LogQueue, *slog.Logger, error) {
	q := &LogQueue{w: w, lines: make(chan []byte, logQueueLines), stop: make(chan struct{}), done: make(chan struct{})}
	var err error
	if q.notice, err = NewLogger(&q.text, format, slog.LevelWarn); err != nil {
		return nil, nil, err
	}
	log, err := NewLogger(q, format, level)
	if err != nil {
		return nil, nil, err
	}
	go q.run()
	return q, log, nil
}

// Write takes a line, or drops it. It does not fail.
func (q *LogQueue) Write(line []byte) (int, error) {
	if q.bytes.Add(int64(len(line))) > logQueueBytes {
		q.drop(line)
		return len(line), nil
	}
	select {
	case q.lines <- slices.Clone(line):
	default:
		q.drop(line)
	}
	return len(line), nil
}

func (q *LogQueue) drop(line []byte) {
	q.bytes.Add(-int64(len(line)))
	q.dropped.Add(1)
}

// Dropped returns how many lines were lost so far.
func (q *LogQueue) Dropped() uint64 { return q.dropped.Load() }

// Stop writes what waits, but gives up after two seconds: then the goroutine is left with its
// write. What is logged later may be lost.
func (q *LogQueue) Stop() {
	q.stopOnce.Do(func() { close(q.stop) })
	select {
	case <-q.done:
	case <-time.After(logFlush):
	}
}

func (q *LogQueue) run() {
	defer close(q.done)
	for {
		select {
		case line := <-q.lines:
			q.write(line)
		case <-q.stop:
			for {
				select {
				case line := <-q.lines:
					q.write(line)
				default:
					return
				}
			}
		}
	}
}

// write writes a line, after a line that says how many were lost, if any were.
func (q *LogQueue) write(line []byte) {
	size := int64(len(line))
	defer q.bytes.Add(-size)
	dropped := q.dropped.Load()
	q.text.Reset()
	if q.broken {
		q.text.WriteByte('\n')
	}
	if dropped > q.lost {
		q.notice.Warn("lines of this log could not be written, and are lost", "lines", dropped-q.lost)
	}
	q.text.Write(line)
	n, err := q.w.Write(q.text.Bytes())
	if err != nil {
		q.dropped.Add(1)
		q.broken = q.broken && n == 0 || n > 0
		return
	}
	q.lost, q.broken = dropped, false
}
