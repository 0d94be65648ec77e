package shaper

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// filed makes n tenants known, each with a job that is due in an hour.
func (w *world) filed(n int) {
	w.t.Helper()
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = Spec{Tenant: fmt.Sprintf("idle%05d", i), ID: "j", Type: "test", Delay: time.Hour}
	}
	for _, o := range w.client.OfferMany(w.t.Context(), specs) {
		w.must(o.Err)
	}
}

// What changes for all tenants has each of them filed anew. One that is due does not wait for the others: it keeps its rate.
func TestWhatChangesForAllDelaysNobody(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	for name, change := range map[string]func(w *world){
		"a policy":  func(w *world) { w.setDownstream(DownstreamPolicy{MaxCrashes: 4}) },
		"a default": func(w *world) { w.setDownstream(DownstreamPolicy{Defaults: Policy{MaxAttempts: 7}}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const tenants = 2000
			w := newWorld(t, rdb)
			w.set("z", Policy{Rate: rate(20, time.Second)})
			w.pool("p", 4)
			w.filed(tenants)
			w.offers("z", 40)
			last := w.start()
			w.finish(last, queue.Finish{Ending: queue.EndOK})
			change(w)
			calls, more := 0, true
			for starts := 0; starts < 30; {
				tickets, wait, again := w.release(1)
				if calls++; again {
					w.pass(3 * milli) // what a call takes, and more
				} else {
					more = false
					w.pass(max(int64(wait/time.Microsecond), milli))
				}
				for _, k := range tickets {
					g, _ := w.enter(k, "p")
					if g == nil {
						t.Fatal("a ticket that starts nothing")
					}
					if gap := g.Slot.Sub(last.Slot); gap != 50*time.Millisecond {
						t.Fatalf("start %d is %v after the one before, want 50ms", starts+1, gap)
					}
					starts, last = starts+1, g
					w.finish(g, queue.Finish{Ending: queue.EndOK})
				}
			}
			if more || calls < tenants/queue.Batch {
				t.Errorf("after %d calls there is still more to do: %v", calls, more)
			}
		})
	}
}

// A default that changes holds for the backlog at once, also for those who have all in flight that they may and wait for an end.
func TestDefaultsHoldForTheBacklog(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ before, after Policy }{
		"in flight": {Policy{MaxInFlight: 1, Rate: rate(1000, time.Second)}, Policy{MaxInFlight: 2}},
		"rate":      {Policy{Rate: rate(1, time.Hour)}, Policy{Rate: rate(1000, time.Second)}},
	} {
		t.Run(name, func(t *testing.T) {
			const tenants = 50 // some calls' worth
			w := newWorld(t, redistest.Open(t))
			w.setDownstream(DownstreamPolicy{Defaults: tc.before})
			w.pool("p", 3*tenants)
			for i := range tenants {
				w.offers(fmt.Sprintf("a%02d", i), 2)
			}
			for range tenants {
				w.start()
			}
			w.pass(second)
			if tickets, _, _ := w.release(1); len(tickets) > 0 {
				t.Fatal("a second job may start: the test shows nothing")
			}
			w.setDownstream(DownstreamPolicy{Defaults: tc.after})
			for range tenants {
				w.startWithin(second)
			}
		})
	}
}
