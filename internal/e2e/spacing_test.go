package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestSixtyAtOnce offers 60 jobs at once to a tenant with 10/s, and looks at what the handlers and the downstream see. Unless a
// daemon is killed meanwhile, it is exactly 59 intervals from the first slot to the last.
func TestSixtyAtOnce(t *testing.T) {
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
			r := newRig(t)
			r.tenant("a", rate(10))
			if tc.kill {
				r.downstream(shaper.DownstreamPolicy{Lease: 2 * time.Second})
			}
			sink := r.sink()
			daemons := r.startAll(slices.Repeat([]role{{Scheduler: true, Worker: true, Target: sink.url}}, tc.daemons)...)
			weather := watch(t)
			r.offer("a", 60, play{For: 20 * time.Millisecond})
			if tc.kill {
				r.starts(20)
				daemons[0].kill()
			}
			h := r.drained()
			rule, seen := perSecond(10), sink.history()
			refuse(t, history.Starts(h, rule), history.Accounts(h))
			refuse(t, history.Spacing(seen, atSink(rule, weather)), history.Windows(seen, atSink(rule, weather)))
			if !tc.kill {
				onSchedule(t, h, "a", rule, weather)
				if n, m := len(h.Of(history.Start)), len(seen); n != 60 || m != 60 {
					t.Errorf("%d starts and %d requests, want 60", n, m)
				}
			}
		})
	}
}

// onSchedule fails the test unless a tenant's slots follow each other without a break. Only where the machine stalled is it
// enough that they are not too fast.
func onSchedule(t *testing.T, h history.History, tenant string, r history.Rule, weather *stalls) {
	t.Helper()
	slip := history.Slip(h, tenant, r)
	switch {
	case slip < 0 || slip > 0 && weather.calm():
		t.Errorf("the slots took %v longer than the rate needs, want 0 (longest stall %v)", slip, weather.longest())
	case slip > 0:
		t.Logf("the slots took %v longer than the rate needs; the machine stalled for up to %v", slip, weather.longest())
	}
}

// TestSpacingHolds disturbs the draining of a backlog at 10/s. Whatever happens, starts keep their distance, and nothing is made up for.
func TestSpacingHolds(t *testing.T) {
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
			// With a lead of nearly an interval a worker holds a slot most of the time, so that whatever happens hits one.
			r.downstream(shaper.DownstreamPolicy{Lead: 90 * time.Millisecond})
			tc.disturb(r, tc.jobs)
			h := r.drained()
			refuse(t, history.Starts(h, perSecond(10)), history.Accounts(h))
			if n := len(h.Of(history.Start)); n != tc.jobs {
				t.Errorf("%d starts, want %d", n, tc.jobs)
			}
		})
	}
}

// TestRatesAreKept: by their slots, backlogs take exactly as long as their rates say, also where an interval is no whole number of
// microseconds, and where it is shorter than the tolerance and the lead.
func TestRatesAreKept(t *testing.T) {
	for _, tc := range []struct {
		name string
		rate int64
		jobs int
	}{
		{"7 per second", 7, 29},
		{"300 per second", 300, 901},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.tenant("a", rate(tc.rate))
			r.startBoth(1)
			weather := watch(t)
			r.offer("a", tc.jobs, play{})
			h := r.drained()
			refuse(t, history.Starts(h, perSecond(tc.rate)), history.Accounts(h))
			onSchedule(t, h, "a", perSecond(tc.rate), weather)
		})
	}
}

// TestRateChangesReachTheBacklog slows a backlog down and speeds it up.
func TestRateChangesReachTheBacklog(t *testing.T) {
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
	if slower-begun > int64(50*time.Millisecond) { // else no slot has been granted after that of the tenth start
		begun = slower
	}
	n := len(r.history().Of(history.Start))
	r.starts(n + 4)
	faster := change(20)
	h := r.drained()

	refuse(t, history.Spacing(h, perSecond(20)), history.OnTime(h, perSecond(2)), history.Accounts(h))
	// Between two changes the rate holds from the first start on, whose slot may have been granted before.
	slow, fast := h.Since(begun).Until(faster), h.Since(faster)
	refuse(t, history.Slots(slow, perSecond(2)), history.Spacing(slow, perSecond(2)), history.Windows(slow, perSecond(2)))
	refuse(t, history.Slots(fast, perSecond(20)), history.Spacing(fast, perSecond(20)), history.Windows(fast, perSecond(20)))
	if first := fast.Of(history.Start)[0]; time.Duration(first.At-faster) > time.Second {
		t.Errorf("first start %v after the change to 20/s, want it within a second", time.Duration(first.At-faster))
	}
}
