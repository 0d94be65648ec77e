package shaper

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

const hour = 3600 * second

// After Redis' clock stepped back by an hour, what waits for an instant waits about as long as it
// would have.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	for _, tc := range []struct {
		name   string
		before func(w *world) // at its end one job of tenant a is left to be started
		most   int64          // µs until it starts
	}{
		{"a job waits", func(w *world) {
			w.offers("a", 2)
			w.runNext()
		}, second + 2*hold},
		{"a backoff", func(w *world) {
			w.offers("a", 1)
			w.finish(w.start(), queue.Finish{Ending: queue.EndError, Delay: 3 * time.Second})
		}, 3*second + 2*hold},
		{"a pause", func(w *world) {
			w.must(w.admin.Pause(w.t.Context(), "a", 4*time.Second))
			w.offers("a", 1)
		}, 4*second + 2*hold},
		{"a pause of the downstream", func(w *world) {
			w.must(w.admin.Pause(w.t.Context(), "", 4*time.Second))
			w.offers("a", 1)
		}, 4*second + 2*hold},
		{"a throttled tenant", func(w *world) {
			w.offers("a", 1)
			w.finish(w.start(), queue.Finish{Ending: queue.EndThrottled, Delay: 4 * time.Second})
		}, 4*second + 2*hold},
		{"a lost ticket", func(w *world) {
			w.offers("a", 1)
			w.release(1)
		}, 5*second + 2*hold},
		{"a lost lease", func(w *world) {
			w.offers("a", 1)
			w.start()
		}, 16*second + 3*hold}, // the lease, and the interval of a tenant whose clock was found to have stepped back
		{"a tenant at its cap", func(w *world) {
			w.set("a", Policy{MaxInFlight: 1})
			w.offers("a", 2)
			g := w.start()
			w.release(1)
			w.pass(-hour)
			w.finish(g, queue.Finish{Ending: queue.EndOK})
			w.pass(hour)
		}, second + 2*hold},
		{"a Redis that was another one shortly before", func(w *world) {
			w.offers("a", 2)
			w.runNext()
			w.must(w.rdb.HSet(w.t.Context(), w.q.DownstreamKey(), "rid", "another").Err())
			w.release(1)
		}, second + 3*hold},
		{"a downstream's rate", func(w *world) {
			w.setDownstream(DownstreamPolicy{Rate: rate(1, 2*time.Second)})
			w.offers("b", 1)
			w.runNext()
			w.offers("a", 1)
		}, 2*second + 2*hold},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.set("a", Policy{Rate: rate(1, time.Second)})
			w.pool("p", 4)
			tc.before(w)
			w.release(0) // as each scheduler does once a second
			w.pass(-hour)
			from := w.now
			g := w.start()
			if took := g.Slot.UnixMicro() - from; took > tc.most {
				t.Errorf("started %v after the step, want at most %v", time.Duration(took)*time.Microsecond, time.Duration(tc.most)*time.Microsecond)
			}
		})
	}
}

// What is set after the step is not cut short by the step.
func TestDeadlinesSetAfterAStepStand(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(10, time.Second)})
	w.pool("p", 4)
	w.offers("a", 2)
	g := w.start()
	w.release(0)
	w.pass(-hour)
	w.finish(g, queue.Finish{Ending: queue.EndError, Delay: 3 * time.Second})
	due := w.now + 3*second
	w.release(0)
	if j := w.job("a", "a1"); j.Due.UnixMicro() != due {
		t.Errorf("a backoff set after the step ends at %d, want %d", j.Due.UnixMicro(), due)
	}

	w = newWorld(t, w.rdb)
	w.pool("p", 4)
	w.offers("a", 1)
	w.release(0)
	w.pass(-hour)
	w.must(w.admin.Pause(t.Context(), "a", 2*time.Hour))
	end := w.now + 2*hour
	w.release(0)
	if a, err := w.admin.Tenant(t.Context(), "a"); err != nil || a.PausedUntil.UnixMicro() != end {
		t.Errorf("a pause set after the step ends at %d (%v), want %d", a.PausedUntil.UnixMicro(), err, end)
	}
}

// Whoever is the first to see the step, what waits is brought nearer once.
func TestMendingAfterAStep(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 4)
	w.offers("a", 1)
	w.finish(w.start(), queue.Finish{Ending: queue.EndError, Delay: 2 * time.Hour})
	w.release(0)
	w.pass(-hour)
	due := w.now + 2*hour
	for range 2 {
		_, err := w.admin.Books(t.Context(), true)
		w.must(err)
	}
	w.release(0)
	if j := w.job("a", "a1"); j.Due.UnixMicro() != due {
		t.Errorf("the backoff ends %d µs early", due-j.Due.UnixMicro())
	}
}

// A pool that vanished before the step is not taken for a live one after it.
func TestPoolsDieAfterAStep(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	_, err := w.gate.Beat(t.Context(), "gone", 5, 6*time.Second, nil)
	w.must(err)
	w.pass(4 * second)
	w.release(0)
	w.pass(-hour)
	w.release(0)
	w.pass(3 * second)
	w.offers("a", 1)
	if tickets, _, _ := w.release(1); len(tickets) > 0 {
		t.Errorf("%v was released to a pool that is gone", tickets)
	}
}

// A step ahead looks like idle time: one job may leave at once, but no more.
func TestClockStepsAhead(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1, time.Second)})
	w.pool("p", 9)
	w.offers("a", 5)
	w.runNext()
	w.pass(hour)
	var slots string
	from := w.now
	for range 3 {
		slots += fmt.Sprint(" ", (w.runNext().Slot.UnixMicro()-from)/milli)
	}
	if slots != " 0 1000 2000" {
		t.Errorf("slots%s ms after the step, want 0 1000 2000", slots)
	}
}
