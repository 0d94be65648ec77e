package e2e

import (
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
)

// TestTerminatedDaemonHandsBack: after SIGTERM nothing starts; of fifty jobs that run, those that
// end within the grace are done; the other half goes back without being charged for it, and runs
// elsewhere.
func TestTerminatedDaemonHandsBack(t *testing.T) {
	notShort(t)
	t.Parallel()
	r := newRig(t)
	const half, more = 25, 20
	for _, tenant := range []string{"short", "long", "rest"} {
		r.tenant(tenant, rate(200))
	}
	// However slow the machine, the short jobs must end neither before the signal arrives nor after
	// the grace.
	first := r.start(role{Scheduler: true, Worker: true, Places: 2 * half, Grace: 8 * time.Second, checked: true})
	r.offer("short", half, play{First: 3 * time.Second})
	r.offer("long", half, play{First: time.Hour})
	r.await("all have started", func(h history.History) bool {
		starts := h.Of(history.Start)
		return len(starts.Tenant("short")) >= half && len(starts.Tenant("long")) >= half
	})
	r.offer("rest", more, play{}) // they wait for a place
	first.terminate()
	first.end()
	h := r.history()
	// Without a stop, all the others would have started in the places of the short ones.
	if late := h.Tenant("rest").Of(history.Start); len(late) > 0 {
		t.Errorf("%d starts after SIGTERM, want none", len(late))
	}
	back := 0
	for _, e := range h.Of(history.End) {
		if e.Outcome == history.Back {
			back++
		}
	}
	if back != half {
		t.Errorf("%d jobs handed back, want the %d that take longer than the grace", back, half)
	}

	r.startBoth(1)
	h = r.drained()
	r.refuse(history.Starts(h, perSecond(200)), history.Accounts(h))
	for _, tenant := range []string{"short", "long", "rest"} {
		r.charged(h, tenant, 1)
	}
	if n := len(h.Of(history.Start)); n != 2*half+more+back {
		t.Errorf("%d starts, want %d", n, 2*half+more+back)
	}
}
