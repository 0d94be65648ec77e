package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestFirstInFirstOut: jobs start in the order in which they were accepted, by their slots, even
// where an interval is shorter than the lead, so that several tickets are on their way at a time,
// and where several daemons race for them. A job that missed its slot because the machine kept its
// worker from running is overtaken by the owner of the next one, and so is one whose ticket is
// given up for lost; so the tolerance is four seconds here, and none is missed.
func TestFirstInFirstOut(t *testing.T) {
	t.Parallel()
	const jobs, tolerance = 200, 10 * time.Second
	rates := []int64{50, 100, 300}
	if testing.Short() {
		rates = rates[2:]
	}
	for _, perSec := range rates {
		for _, daemons := range []int{1, 3} {
			for _, batch := range []bool{false, true} {
				name := fmt.Sprintf("%d per second, %d daemons, one by one", perSec, daemons)
				if batch {
					name = fmt.Sprintf("%d per second, %d daemons, a batch", perSec, daemons)
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r := newRig(t)
					r.tenant("a", rate(perSec))
					r.downstream(shaper.DownstreamPolicy{Tolerance: tolerance})
					r.startAll(slices.Repeat([]role{{Scheduler: true, TicketTTL: time.Minute, Worker: true}}, daemons)...)
					if batch {
						r.offer("a", jobs, play{})
					} else {
						for range jobs {
							r.offerOne(shaper.Spec{Tenant: "a"}, play{})
						}
					}
					h := r.drained()
					rule := perSecond(perSec)
					rule.Tolerance = tolerance
					r.refuse(history.Starts(h, rule), history.Accounts(h), history.Order(h))
					if n := overtaken(h); n > 0 {
						t.Errorf("%d jobs own a slot before one that was offered earlier; the machine stalled for up to %v", n, r.weather.longest())
					}
				})
			}
		}
	}
}

// overtaken counts jobs of a tenant that started before one that was offered earlier, by their
// slots, in a history with one producer. As in history.Order, only first attempts count.
func overtaken(h history.History) (n int) {
	place := map[string]int{}
	for i, e := range h.Of(history.Offer) {
		place[e.ID] = i
	}
	var starts history.History
	for _, e := range h.Of(history.Start) {
		if e.Attempt == 1 {
			starts = append(starts, e)
		}
	}
	slices.SortFunc(starts, func(a, b history.Event) int { return cmp.Compare(a.Slot, b.Slot) })
	earliest := len(place)
	for _, e := range slices.Backward(starts) {
		if place[e.ID] > earliest {
			n++
		}
		earliest = min(earliest, place[e.ID])
	}
	return n
}

// TestTenantsDoNotHurtEachOther: 3 000 waiting jobs of one tenant, and failing ones of another, do
// not hold up a third.
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
	// Some 3 ms on an idle machine.
	if median := waits[len(waits)/2]; median > 500*time.Millisecond+10*r.weather.longest() {
		t.Errorf("jobs of idle tenants waited %v, want next to nothing", waits)
	}
	r.refuse(history.Starts(r.history(), perSecond(10)))
}

// TestInFlightIsBounded: handlers that go on after their time is over, and do not heed their
// context, keep their places.
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
		r.refuse(history.InFlight(h, "a", 2), history.Starts(h, perSecond(50)), history.Accounts(h))
	})
	t.Run("by the downstream's max_in_flight", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.downstream(shaper.DownstreamPolicy{MaxInFlight: 3, Defaults: p})
		r.startBoth(2)
		r.offer("a", 10, deaf)
		r.offer("b", 10, deaf)
		h := r.drained()
		r.refuse(history.InFlight(h, "", 3), history.Starts(h, perSecond(50)), history.Accounts(h))
	})
	t.Run("by the places of a pool", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.tenant("a", p)
		r.daemon(role{Scheduler: true, Worker: true, Places: 3})
		r.offer("a", 20, deaf)
		h := r.drained()
		r.refuse(history.InFlight(h, "a", 3), history.Starts(h, perSecond(50)), history.Accounts(h))
	})
}
