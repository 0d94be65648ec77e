package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestFirstInFirstOut: jobs that are offered one after another start in that order. Only a job that missed its slot, since
// the machine kept its worker from running, may be overtaken: the next one owns the next slot by then.
func TestFirstInFirstOut(t *testing.T) {
	const jobs = 50
	r := newRig(t)
	r.tenant("a", rate(25))
	r.startBoth(2)
	weather := watch(t)
	for range jobs {
		r.offerOne(shaper.Spec{Tenant: "a"}, play{})
	}
	h := r.drained()
	refuse(t, history.Starts(h, perSecond(25)), history.Accounts(h))
	if inversions := history.Order(h); weather.calm() || len(inversions) > jobs/5 {
		refuse(t, inversions)
	} else if len(inversions) > 0 {
		t.Logf("%d inversions; the machine stalled for up to %v", len(inversions), weather.longest())
	}
}

// TestTenantsDoNotHurtEachOther: 3 000 waiting jobs of one tenant, and failing ones of another, do not hold up a third.
func TestTenantsDoNotHurtEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := rate(10)
	p.Depth = 10_000
	r.tenant("full", p)
	p.Backoff = quickly
	r.tenant("failing", p)
	r.daemon(both)
	r.offer("full", 3000, play{})
	r.offer("failing", 10, play{Fail: 100})
	r.starts(10)
	for i := range 10 {
		id := r.offerOne(shaper.Spec{Tenant: fmt.Sprintf("small-%d", i)}, play{})
		r.await("the small job starts", func(h history.History) bool {
			return slices.ContainsFunc(h.Of(history.Start), func(e history.Event) bool { return e.ID == id })
		})
	}
	var waits []time.Duration
	accepted := map[string]int64{}
	for _, e := range r.history() {
		switch {
		case !strings.HasPrefix(e.Tenant, "small"):
		case e.Kind == history.Accept:
			accepted[e.ID] = e.At
		case e.Kind == history.Start:
			waits = append(waits, time.Duration(e.At-accepted[e.ID]))
		}
	}
	slices.Sort(waits)
	if median := waits[len(waits)/2]; median > 500*time.Millisecond { // some 3 ms on an idle machine
		t.Errorf("jobs of idle tenants waited %v, want next to nothing", waits)
	}
	refuse(t, history.Starts(r.history(), perSecond(10)))
}

// TestInFlightIsBounded: handlers that run on after their time is over, and do not heed their context, keep their places.
func TestInFlightIsBounded(t *testing.T) {
	deaf := play{For: 150 * time.Millisecond, Deaf: true}
	p := rate(50)
	p.Timeout = 50 * time.Millisecond
	t.Run("by the tenant's max_in_flight", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		p := p
		p.MaxInFlight = 2
		r.tenant("a", p)
		r.startBoth(2)
		r.offer("a", 20, deaf)
		h := r.drained()
		refuse(t, history.InFlight(h, "a", 2), history.Starts(h, perSecond(50)), history.Accounts(h))
	})
	t.Run("by the downstream's max_in_flight", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.downstream(shaper.DownstreamPolicy{MaxInFlight: 3, Defaults: p})
		r.startBoth(2)
		r.offer("a", 10, deaf)
		r.offer("b", 10, deaf)
		h := r.drained()
		refuse(t, history.InFlight(h, "", 3), history.Starts(h, perSecond(50)), history.Accounts(h))
	})
	t.Run("by the places of a pool", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.tenant("a", p)
		r.daemon(role{Scheduler: true, Worker: true, Places: 3})
		r.offer("a", 20, deaf)
		h := r.drained()
		refuse(t, history.InFlight(h, "a", 3), history.Starts(h, perSecond(50)), history.Accounts(h))
	})
}
