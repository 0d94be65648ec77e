package shaper

import (
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// releaseFrom releases for a scheduler that is so far away, as is pool p.
func (w *world) releaseFrom(far time.Duration) (tickets []queue.Ticket) {
	w.t.Helper()
	gate := queue.NewGate(w.q)
	gate.Trip.Note(far)
	_, err := gate.Beat(w.t.Context(), "p", 100, time.Hour, nil)
	w.must(err)
	r, err := w.q.Release(w.t.Context(), 50, ticketTTL, false, far)
	w.must(err)
	return r.Tickets
}

// grantAll brings tickets to the gate, and returns how far ahead the last slot is.
func (w *world) grantAll(tickets []queue.Ticket) (ahead int64) {
	w.t.Helper()
	for _, k := range tickets {
		if g, _ := w.enter(k, "p"); g != nil {
			ahead = g.Slot.UnixMicro() - w.now
		}
	}
	return ahead
}

// Tickets go out earlier the further away Redis is, up to what the policy allows.
func TestLeadFollowsTheDistance(t *testing.T) {
	rdb := redistest.Open(t)
	for _, tc := range []struct {
		far, most time.Duration
		lead      int64
	}{
		{0, 0, 20 * milli}, {7 * time.Millisecond, 0, 55 * milli}, {20 * time.Millisecond, 0, 120 * milli},
		{50 * time.Millisecond, 0, 270 * milli}, {70 * time.Millisecond, 0, 300 * milli}, {20 * time.Millisecond, 40 * time.Millisecond, 40 * milli},
	} {
		w := newWorld(t, rdb)
		w.setDownstream(DownstreamPolicy{MaxLead: tc.most, Defaults: Policy{Rate: rate(200, time.Second)}})
		w.offers("a", 70)
		got := int64(0)
		for tickets := w.releaseFrom(tc.far); len(tickets) > 0; tickets = w.releaseFrom(tc.far) {
			got = w.grantAll(tickets)
		}
		if got != tc.lead {
			t.Errorf("%v away, at most %v: %d µs ahead, want %d", tc.far, tc.most, got, tc.lead)
		}
	}
}

// A restart may forget that the lead had become longer, and slots that were granted so far ahead.
// Nothing starts too close to those.
func TestLongerLeadThatWasForgotten(t *testing.T) {
	rdb := redistest.Open(t)
	for _, calm := range []bool{false, true} { // whether a release promised before that it stays as it is
		w := newWorld(t, rdb)
		ctx := t.Context()
		w.setDownstream(DownstreamPolicy{Defaults: Policy{Rate: rate(10, time.Second)}})
		w.offers("a", 9)
		w.pool("p", 9)
		if calm {
			w.release(0)
		}
		kept := map[string]string{}
		for _, key := range rdb.Keys(ctx, w.q.Prefix+"*").Val() {
			kept[key] = rdb.Dump(ctx, key).Val()
		}
		last := w.now + w.grantAll(w.releaseFrom(50*time.Millisecond))
		if longer := last-w.now > hold; longer == calm {
			t.Errorf("calm %v, and a slot was granted %d µs ahead", calm, last-w.now)
		}
		for _, key := range rdb.Keys(ctx, w.q.Prefix+"*").Val() {
			w.must(rdb.Del(ctx, key).Err())
		}
		for key, dump := range kept {
			w.must(rdb.Restore(ctx, key, 0, dump).Err())
		}
		w.pass(milli)
		w.becomesAnother()
		w.pool("p", 9)
		if slot := w.startWithin(10 * second).Slot.UnixMicro(); slot-last < 100*milli {
			t.Errorf("calm %v: a start %d µs after one that was forgotten", calm, slot-last)
		}
	}
}

// A slot that nobody asked for in time has slipped, and its start says by how much; one that nobody
// waited for has not.
func TestSlippedSlot(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 9)
	w.set("a", Policy{Rate: rate(10, time.Second)})
	w.offers("a", 3)
	first := w.start().Slot.UnixMicro()
	w.now = first + 110*milli // in time, if only just
	if g := w.start(); g.Slot.UnixMicro() != first+100*milli || g.Slipped != 0 {
		t.Errorf("slot %d µs after the first, slipped by %v", g.Slot.UnixMicro()-first, g.Slipped)
	}
	w.now = first + 210*milli + 1
	if g := w.start(); g.Slot.UnixMicro() != w.now || g.Slipped != 10*time.Millisecond+time.Microsecond {
		t.Errorf("slot %d µs after the first, slipped by %v", g.Slot.UnixMicro()-first, g.Slipped)
	}
	w.pass(10 * second)
	w.offers("b", 1)
	w.start()
	w.pass(10 * second)
	w.offer(Spec{Tenant: "b", ID: "b2"})
	if g := w.start(); g.Slipped != 0 {
		t.Errorf("a start of an idle tenant slipped by %v", g.Slipped)
	}
}
