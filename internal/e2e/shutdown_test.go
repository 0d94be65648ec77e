package e2e

import (
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
)

// TestTerminatedDaemonHandsBack: after SIGTERM nothing starts; what ends within the grace is done; the rest goes back without
// being charged for it, and runs elsewhere.
func TestTerminatedDaemonHandsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tenant("a", rate(20))
	first := r.start(role{Scheduler: true, Worker: true, Grace: time.Second})
	r.offer("a", 4, play{First: 700 * time.Millisecond})
	r.offer("a", 4, play{First: time.Hour})
	r.offer("a", 20, play{})
	r.starts(10)
	first.terminate()
	terminated := history.Now()
	first.end()
	h := r.history()
	// The signal may take a moment to arrive; without a stop, twenty would have started in the grace.
	if late := h.Since(terminated + int64(300*time.Millisecond)).Of(history.Start); len(late) > 0 {
		t.Errorf("%d starts long after SIGTERM, want none", len(late))
	}
	back := 0
	for _, e := range h.Of(history.End) {
		if e.Outcome == history.Back {
			back++
		}
	}
	if back != 4 {
		t.Errorf("%d jobs handed back, want the 4 that take longer than the grace", back)
	}

	r.startBoth(1)
	h = r.drained()
	refuse(t, history.Starts(h, perSecond(20)), history.Accounts(h))
	r.charged(h, "a", 1)
	if n := len(h.Of(history.Start)); n != 28+back {
		t.Errorf("%d starts, want %d", n, 28+back)
	}
}
