package workers

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/shaper"
)

// The log tells of an episode once, and of its end once, even where other pools saw part of it.
func TestThrottlesAreToldOnce(t *testing.T) {
	var m throttles
	got := ""
	for _, row := range []int{9, 10, 11, 12, 0, 0, 3, 10, 14, 11, 2, 10, 30, 0} {
		over, begun := m.note("a", row)
		if over {
			got += "over "
		}
		if begun {
			got += "begun "
		}
		got += "| "
	}
	const want = "| begun | | | over | | | begun | | over begun | over | begun | | over | "
	if got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if over, begun := m.note("b", 25); over || !begun || len(m.row) != 1 {
		t.Errorf("another tenant: over %v, begun %v, %d remembered", over, begun, len(m.row))
	}
}

// safeBuffer is a log that may be read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.b.String(), text)
}

// TestAlwaysThrottled: a job whose downstream throttles it for ever ends, and lets what waits
// behind it go. The log tells of it once.
func TestAlwaysThrottled(t *testing.T) {
	var log safeBuffer
	var starts atomic.Int64
	b := newBench(t, func(ctx context.Context, _ *asynq.Task) error {
		if job, _ := JobFrom(ctx); job.ID == "a-1" {
			starts.Add(1)
			return &ThrottledError{After: time.Millisecond, Downstream: starts.Load()%2 == 0, Err: errors.New("status 429")}
		}
		return nil
	}, Config{})
	b.pool.log = slog.New(slog.NewTextHandler(&log, nil))
	b.policy(shaper.Policy{Rate: buckets.PerSecond(1000), MaxThrottles: 15, MaxInFlight: 1})
	b.start()
	b.offer("a", 1)
	behind := b.offer("a", 2)
	if job := b.wait("a", "a-1"); job.State != shaper.StateDead || job.Reason != shaper.ReasonThrottled || starts.Load() != 15 || job.Attempt != 15 || job.Charged > 1 {
		t.Errorf("%+v after %d starts; want it dead, throttled, after 15", job, starts.Load())
	}
	if job := b.wait("a", behind); job.State != shaper.StateDone {
		t.Errorf("what waited behind it is %s", job.State)
	}
	until(t, "it is over", func() bool { return log.count("lets jobs through again") > 0 })
	if begun, over := log.count("level=WARN msg=\"the downstream lets nothing through"), log.count("lets jobs through again"); begun != 1 || over != 1 {
		t.Errorf("told %d times, and %d times that it is over; want once each", begun, over)
	}
}
