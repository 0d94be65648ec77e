package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestSixtyAtOnce offers 60 jobs at once to a tenant with 10/s, and looks at what the handlers and
// the downstream see. Unless a daemon is killed meanwhile, it is exactly 59 intervals from the
// first slot to the last.
func TestSixtyAtOnce(t *testing.T) {
	notShort(t)
	for _, tc := range []struct {
		name    string
		daemons int
		kill    bool
	}{
		{"one daemon", 1, false},
		{"three daemons", 3, false},
		{"three daemons, one is killed", 3, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // with each other
			r := newRig(t)
			r.tenant("a", rate(10))
			if tc.kill {
				r.downstream(shaper.DownstreamPolicy{Lease: 2 * time.Second})
			}
			sink := r.sink()
			daemons := r.startAll(slices.Repeat([]role{{Scheduler: true, Worker: true, Target: sink.url}}, tc.daemons)...)
			r.offer("a", 60, play{For: 20 * time.Millisecond})
			if tc.kill {
				r.starts(20)
				daemons[0].kill()
			}
			h := r.drained()
			rule, seen := perSecond(10), sink.history()
			r.refuse(history.Starts(h, rule), history.Accounts(h))
			r.refuse(history.Spacing(seen, r.atSink(rule)), history.Windows(seen, r.atSink(rule)))
			if !tc.kill {
				r.onSchedule(h, "a", rule)
				if n, m := len(h.Of(history.Start)), len(seen); n != 60 || m != 60 {
					t.Errorf("%d starts and %d requests, want 60", n, m)
				}
			}
		})
	}
}

// onSchedule fails the test unless a tenant's slots follow each other without a break. A stall of
// the machine excuses one.
func (r *rig) onSchedule(h history.History, tenant string, rule history.Rule) {
	r.t.Helper()
	late := missed(h, tenant, rule)
	if slip := history.Slip(h, tenant, rule); slip < 0 || slip > 0 && len(late) == 0 {
		r.t.Errorf("the slots took %v longer than the rate needs, want 0", slip)
	}
	r.refuse(late)
}

// missed finds where the next slot of a tenant with a backlog was more than an interval away,
// because nobody came to an earlier one.
func missed(h history.History, tenant string, rule history.Rule) (out []history.Violation) {
	starts := h.Of(history.Start).Tenant(tenant)
	slices.SortFunc(starts, func(a, b history.Event) int { return cmp.Compare(a.Slot, b.Slot) })
	interval := time.Duration(float64(rule.Rate.Period) / float64(rule.Rate.Events))
	for i, e := range starts[1:] {
		// Slots are whole µs.
		if gap := time.Duration(e.Slot-starts[i].Slot) * time.Microsecond; gap > interval+2*time.Microsecond {
			out = append(out, history.Violation{Check: "missed slot", Tenant: tenant, ID: e.ID, At: e.At,
				What: fmt.Sprintf("slot %v after the one before, want %v", gap, interval)})
		}
	}
	return out
}

// TestSpacingHolds disturbs the draining of a backlog at 10/s. Whatever happens, starts keep their
// distance, and nothing is made up for.
func TestSpacingHolds(t *testing.T) {
	notShort(t)
	const stall = 2 * time.Second
	for _, tc := range []struct {
		name    string
		jobs    int
		disturb func(r *rig, jobs int)
		server  bool // it does something to the server
	}{
		{"when the workers were away", 40, func(r *rig, jobs int) {
			r.start(role{Scheduler: true})
			worker := r.start(role{Worker: true, Grace: time.Millisecond})
			r.offer("a", jobs, play{})
			r.starts(10)
			worker.terminate()
			worker.end()
			time.Sleep(3 * time.Second)
			r.start(role{Worker: true})
		}, false},
		{"after idle time", 30, func(r *rig, jobs int) {
			r.startBoth(1)
			r.offer("a", 1, play{})
			r.drained()
			time.Sleep(stall)
			r.offer("a", jobs-1, play{})
		}, false},
		{"when a daemon stands still", 40, func(r *rig, jobs int) {
			daemon := r.startBoth(1)[0]
			r.offer("a", jobs, play{})
			for n := range 4 {
				r.starts(5 * (n + 1))
				daemon.freeze(stall / 4)
			}
			r.starts(25)
			daemon.freeze(stall)
		}, false},
		{"when one of two daemons stands still", 40, func(r *rig, jobs int) {
			daemon := r.startBoth(2)[0]
			r.offer("a", jobs, play{})
			r.starts(10)
			daemon.freeze(stall)
		}, false},
		{"when Redis stands still", 40, func(r *rig, jobs int) {
			r.startBoth(2)
			r.offer("a", jobs, play{})
			r.starts(10)
			for range 2 {
				r.server.Pause()
				time.Sleep(stall / 2)
				r.server.Continue()
				r.starts(len(r.history().Of(history.Start)) + 3)
			}
			r.server.Pause()
			time.Sleep(stall)
			r.server.Continue()
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rigged := newRig
			if tc.server {
				rigged = func(t *testing.T) *rig { return newServerRig(t) }
			}
			r := rigged(t)
			r.tenant("a", rate(10))
			// With a lead of nearly an interval a worker holds a slot most of the time, so that
			// whatever happens hits such a slot.
			r.downstream(shaper.DownstreamPolicy{Lead: 90 * time.Millisecond})
			tc.disturb(r, tc.jobs)
			h := r.drained()
			r.refuse(history.Starts(h, perSecond(10)), history.Accounts(h))
			if n := len(h.Of(history.Start)); n != tc.jobs {
				t.Errorf("%d starts, want %d", n, tc.jobs)
			}
		})
	}
}

// TestRatesAreKept: by their slots, backlogs take exactly as long as their rates say, even where an
// interval is not a whole number of microseconds, and where it is shorter than the tolerance and
// the lead.
func TestRatesAreKept(t *testing.T) {
	notShort(t)
	for _, tc := range []struct {
		name string
		rate int64
		jobs int
	}{
		{"7 per second", 7, 29},
		{"300 per second", 300, 901},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // with each other
			r := newRig(t)
			r.tenant("a", rate(tc.rate))
			r.startBoth(1)
			r.offer("a", tc.jobs, play{})
			h := r.drained()
			r.refuse(history.Starts(h, perSecond(tc.rate)), history.Accounts(h))
			r.onSchedule(h, "a", perSecond(tc.rate))
		})
	}
}

// TestRateChangesReachTheBacklog slows a backlog down and speeds it up.
func TestRateChangesReachTheBacklog(t *testing.T) {
	notShort(t)
	t.Parallel()
	r := newRig(t)
	r.tenant("a", rate(10))
	r.startBoth(1)
	r.offer("a", 60, play{})
	change := func(n int64) int64 {
		r.tenant("a", rate(n))
		return history.Now()
	}
	begun := r.starts(10).Of(history.Start)[9].At
	slower := change(2)
	if slower-begun > int64(50*time.Millisecond) { // otherwise no slot has been granted after that of the tenth start
		begun = slower
	}
	n := len(r.history().Of(history.Start))
	r.starts(n + 4)
	faster := change(20)
	h := r.drained()

	r.refuse(history.Spacing(h, perSecond(20)), history.OnTime(h, perSecond(2)), history.Accounts(h))
	// Between two changes the rate holds from the first start on, whose slot may have been granted
	// before.
	slow, fast := h.Since(begun).Until(faster), h.Since(faster)
	r.refuse(history.Slots(slow, perSecond(2)), history.Spacing(slow, perSecond(2)), history.Windows(slow, perSecond(2)))
	r.refuse(history.Slots(fast, perSecond(20)), history.Spacing(fast, perSecond(20)), history.Windows(fast, perSecond(20)))
	if first := fast.Of(history.Start)[0]; time.Duration(first.At-faster) > time.Second+10*r.weather.longest() {
		t.Errorf("first start %v after the change to 20/s, want it within a second", time.Duration(first.At-faster))
	}
}
