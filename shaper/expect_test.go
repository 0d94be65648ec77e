package shaper

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// told asks for the expected start of every job that waits, by offering it again, all at one
// instant.
func (w *world) told(specs []Spec) map[string]Result {
	w.t.Helper()
	out, now := map[string]Result{}, w.now
	for _, s := range specs {
		s.Type = "test"
		r, err := w.client.Offer(w.t.Context(), s)
		w.must(err)
		if r.Status != Accepted || !r.Duplicate {
			w.t.Fatalf("offered again: %+v", r)
		}
		out[s.Tenant+" "+s.ID] = r
	}
	w.now = now
	return out
}

// Jobs start when answers said that they would, within a tenth of the wait or an interval, whatever
// they wait for.
func TestExpectedStartsComeTrue(t *testing.T) {
	testenv.Long(t, "plays thousands of starts")
	t.Parallel()
	rdb := redistest.Open(t)
	ten := Policy{Rate: rate(10, time.Second)}
	for _, tc := range []struct {
		name     string
		set      func(w *world)
		offer    map[string]int // by tenant
		delayed  map[string]int // as many, due in 5 s, 5.01 s …
		then     func(w *world)
		interval map[string]time.Duration // of the tenant's own starts, as they come
	}{
		{name: "a backlog", set: func(w *world) { w.set("a", ten) }, offer: map[string]int{"a": 60}},
		{name: "behind a pause", set: func(w *world) { w.set("a", ten) }, offer: map[string]int{"a": 30},
			then: func(w *world) { w.must(w.admin.Pause(w.t.Context(), "a", 20*time.Second)) }},
		{name: "behind a pause of everything", set: func(w *world) { w.set("a", ten) }, offer: map[string]int{"a": 30},
			then: func(w *world) { w.must(w.admin.Pause(w.t.Context(), "", 20*time.Second)) }},
		{name: "delayed, behind a backlog", set: func(w *world) { w.set("a", ten) }, offer: map[string]int{"a": 80}, delayed: map[string]int{"a": 10}},
		{name: "delayed, the backlog gone by then", set: func(w *world) { w.set("a", ten) }, offer: map[string]int{"a": 20}, delayed: map[string]int{"a": 10}},
		{name: "delayed and paused", set: func(w *world) { w.set("a", ten) }, offer: map[string]int{"a": 10}, delayed: map[string]int{"a": 5},
			then: func(w *world) { w.must(w.admin.Pause(w.t.Context(), "a", 20*time.Second)) }},
		{name: "two that share a rate", set: func(w *world) { w.common(10, ten, "a", "b") },
			offer: map[string]int{"a": 40, "b": 40}, interval: map[string]time.Duration{"a": 200 * time.Millisecond, "b": 200 * time.Millisecond}},
		{name: "two that share a rate, one with little", set: func(w *world) { w.common(10, ten, "a", "b") },
			offer: map[string]int{"a": 5, "b": 60}, interval: map[string]time.Duration{"a": 200 * time.Millisecond, "b": 200 * time.Millisecond}},
		{name: "three with little, some and much", set: func(w *world) { w.common(10, ten, "a", "b", "c") },
			offer:    map[string]int{"a": 5, "b": 20, "c": 60},
			interval: map[string]time.Duration{"a": 300 * time.Millisecond, "b": 300 * time.Millisecond, "c": 300 * time.Millisecond}},
		{name: "by weight", set: func(w *world) {
			w.common(10, ten, "a", "b")
			w.set("a", Policy{Weight: 4})
		}, offer: map[string]int{"a": 60, "b": 60}, interval: map[string]time.Duration{"a": 125 * time.Millisecond, "b": 500 * time.Millisecond}},
		{name: "a neighbour that is slower than its share", set: func(w *world) {
			w.common(10, ten, "a", "b")
			w.set("a", Policy{Rate: rate(1, time.Second)})
		}, offer: map[string]int{"a": 8, "b": 60}, interval: map[string]time.Duration{"a": time.Second, "b": 112 * time.Millisecond}},
		{name: "a neighbour that is paused", set: func(w *world) { w.common(10, ten, "a", "b") }, offer: map[string]int{"a": 30, "b": 30},
			then:     func(w *world) { w.must(w.admin.Pause(w.t.Context(), "a", 10*time.Minute)) },
			interval: map[string]time.Duration{"a": 100 * time.Millisecond, "b": 100 * time.Millisecond}},
		{name: "twenty that share a rate", set: func(w *world) {
			var names []string
			for i := range 20 {
				names = append(names, fmt.Sprint("n", i))
			}
			w.common(10, ten, append(names, "a")...)
			for _, n := range names {
				w.offers(n, 12)
			}
		}, offer: map[string]int{"a": 12}, interval: map[string]time.Duration{"a": 2100 * time.Millisecond}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.pool("p", 100)
			tc.set(w)
			var specs []Spec
			for _, name := range []string{"a", "b", "c"} {
				for i := range tc.offer[name] {
					specs = append(specs, Spec{Tenant: name, ID: fmt.Sprint(name, i)})
				}
				for i := range tc.delayed[name] {
					specs = append(specs, Spec{Tenant: name, ID: fmt.Sprint(name, "l", i), Delay: 5*time.Second + time.Duration(i)*10*time.Millisecond})
				}
			}
			for _, s := range specs {
				w.offer(s)
			}
			w.runNext() // so that the bucket has begun to leave
			if tc.then != nil {
				tc.then(w)
			}
			specs = slices.DeleteFunc(specs, func(s Spec) bool { return w.job(s.Tenant, s.ID).State == StateDone })
			now, told := w.now, w.told(specs)
			left := len(told)
			for left > 0 {
				g := w.startWithin(3600 * second)
				w.now = max(w.now, g.Slot.UnixMicro())
				w.finish(g, queue.Finish{Ending: queue.EndOK})
				r, asked := told[g.Tenant+" "+g.ID]
				if !asked {
					continue
				}
				left--
				interval := tc.interval[g.Tenant]
				if interval == 0 {
					interval = 100 * time.Millisecond
				}
				wait, off := g.Slot.Sub(time.UnixMicro(now)), g.Slot.Sub(r.ETA)
				if r.ETA.IsZero() || off.Abs() > max(wait/10, interval+20*time.Millisecond) {
					t.Errorf("%s started after %v, %v from what was expected (place %d, %q)", g.ID, wait, off, r.Position, r.Note)
				}
			}
		})
	}
}

// common lets tenants of one policy share a rate per second.
func (w *world) common(perSecond int64, p Policy, tenants ...string) {
	w.setDownstream(DownstreamPolicy{Rate: rate(perSecond, time.Second)})
	for _, name := range tenants {
		w.set(name, p)
	}
}

// Where a start depends on what no timeline tells, the answer says so and names no instant.
func TestNoExpectedStart(t *testing.T) {
	rdb := redistest.Open(t)
	for _, tc := range []struct {
		name   string
		p      Policy
		before func(w *world)
		note   string
	}{
		{"no pool", Policy{}, func(*world) {}, NoteNoWorkers},
		{"a pool that takes nothing more", Policy{}, func(w *world) { w.pool("p", 4); w.pool("p", 0) }, NoteNoWorkers},
		{"a pool that fell silent", Policy{}, func(w *world) { w.pool("p", 4); w.pass(2 * 3600 * second) }, NoteNoWorkers},
		{"one of two pools is gone", Policy{}, func(w *world) { w.pool("p", 4); w.pool("q", 2); w.pool("q", 0) }, ""},
		{"paused", Policy{}, func(w *world) { w.pool("p", 4); w.must(w.admin.Pause(w.t.Context(), "a", 0)) }, NotePaused},
		{"all paused", Policy{}, func(w *world) { w.pool("p", 4); w.must(w.admin.Pause(w.t.Context(), "", 0)) }, NotePaused},
		{"resumed", Policy{}, func(w *world) {
			w.pool("p", 4)
			w.must(w.admin.Pause(w.t.Context(), "", 0))
			w.must(w.admin.Resume(w.t.Context(), ""))
		}, ""},
		{"the tenant's cap", Policy{MaxInFlight: 2}, func(w *world) { w.pool("p", 4); w.offers("a", 2); w.start(); w.start() }, NoteInFlight},
		{"the downstream's cap", Policy{}, func(w *world) {
			w.setDownstream(DownstreamPolicy{MaxInFlight: 1})
			w.pool("p", 4)
			w.offers("b", 1)
			w.start()
		}, NoteInFlight},
		{"all places taken", Policy{}, func(w *world) { w.pool("p", 1); w.offers("b", 1); w.start() }, NoteInFlight},
		{"a cap, and jobs that run long", Policy{MaxInFlight: 1}, func(w *world) {
			w.pool("p", 4)
			w.offers("a", 2)
			g := w.start()
			w.pass(10 * second)
			w.finish(g, queue.Finish{Ending: queue.EndOK, Began: queue.BeganAfter(0)})
		}, NoteInFlight},
		{"a cap that is full for a moment, and the rate is kept", Policy{MaxInFlight: 1}, func(w *world) {
			w.pool("p", 4)
			w.offers("a", 6)
			for range 3 {
				g := w.start()
				w.now = g.Slot.UnixMicro() + 30*milli
				w.finish(g, queue.Finish{Ending: queue.EndOK, Began: queue.BeganAfter(0)})
			}
			w.start()
		}, ""},
		{"a cap, and one job that runs on and on", Policy{MaxInFlight: 1}, func(w *world) {
			w.pool("p", 4)
			w.offers("a", 6)
			for range 3 {
				g := w.start()
				w.now = g.Slot.UnixMicro() + 30*milli
				w.finish(g, queue.Finish{Ending: queue.EndOK, Began: queue.BeganAfter(0)})
			}
			w.start()
			w.pass(5 * second)
		}, NoteInFlight},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.set("a", tc.p)
			tc.before(w)
			for range 2 { // the first may find an idle tenant, the second one that is busy
				last := w.now
				r := w.offer(Spec{Tenant: "a"})
				again := w.offer(Spec{Tenant: "a", ID: r.ID})
				for _, r := range []Result{r, again} {
					if r.Status != Accepted || r.Note != tc.note || r.ETA.IsZero() != (tc.note != "") || !r.ETA.IsZero() && r.ETA.UnixMicro() < last {
						t.Errorf("%+v, want the note %q", r, tc.note)
					}
				}
				info, err := w.admin.Tenant(t.Context(), "a")
				w.must(err)
				if info.Note != tc.note && info.Waiting == 1 || info.NextSlot.IsZero() != (info.Note != "") {
					t.Errorf("the tenant: next %v, note %q, want %q", info.NextSlot, info.Note, tc.note)
				}
			}
		})
	}
}

// A job that runs has started in its slot, and one that ended has no start to come.
func TestExpectedStartOfWhatStarted(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 4)
	s := Spec{Tenant: "a", ID: "j"}
	w.offer(s)
	g := w.start()
	w.pass(10 * milli)
	if r := w.offer(s); !r.ETA.Equal(g.Slot) || r.State != StateRunning || r.Position != 0 {
		t.Errorf("while it runs: %+v, want its slot %v", r, g.Slot)
	}
	w.finish(g, queue.Finish{Ending: queue.EndError, Delay: 30 * time.Second})
	if r := w.offer(s); r.State != StateDelayed || r.ETA.Sub(time.UnixMicro(w.now)) < 29*time.Second {
		t.Errorf("in its backoff: %+v", r)
	}
	w.pass(31 * second)
	w.finish(w.start(), queue.Finish{Ending: queue.EndOK})
	if r := w.offer(s); !r.ETA.IsZero() || r.State != StateDone || !r.Duplicate {
		t.Errorf("when it is done: %+v", r)
	}
}
