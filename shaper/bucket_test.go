package shaper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestExpiredJobsUseNoSlot(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1, time.Second), Depth: 2000, MaxWait: 10 * time.Second})
	w.pool("p", 1)
	for i := range 120 { // more than one call looks at
		w.offer(Spec{Tenant: "a", ID: fmt.Sprint("old", i)})
	}
	w.pass(11 * second)
	w.offer(Spec{Tenant: "a", ID: "patient", MaxWait: -1})
	w.offer(Spec{Tenant: "a", ID: "young"})
	from := w.now
	if g := w.runNext(); g.ID != "patient" || g.Slot.UnixMicro()-from > hold {
		t.Errorf("%s started %v later, want patient, at once", g.ID, g.Slot.Sub(time.UnixMicro(from)))
	}
	if g := w.runNext(); g.ID != "young" || g.Slot.UnixMicro()-from > second+hold {
		t.Errorf("%s started %v later, want young, an interval later", g.ID, g.Slot.Sub(time.UnixMicro(from)))
	}
	a, err := w.admin.Tenant(t.Context(), "a")
	w.must(err)
	if c := a.Counters; c.Expired != 120 || c.Started != 2 || c.Done != 2 {
		t.Errorf("counters %+v, want 120 expired, 2 started and done", c)
	}
	if j := w.job("a", "old7"); j.State != StateExpired || j.Attempt != 0 {
		t.Errorf("an expired job is %s after %d attempts", j.State, j.Attempt)
	}
}

// A job that was started once and came back does not expire; one that waited too long while its
// ticket was out does.
func TestOnlyWhatNeverStartedExpires(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(10, time.Second), MaxWait: time.Second})
	w.pool("p", 9)
	w.offers("a", 2)
	w.finish(w.start(), queue.Finish{Ending: queue.EndError, Delay: 5 * time.Second})
	w.pass(200 * milli)
	tickets, _, _ := w.release(1)
	if len(tickets) != 1 {
		t.Fatalf("%d tickets", len(tickets))
	}
	w.pass(2 * second)
	if _, answer := w.enter(tickets[0], "p"); answer != queue.TicketExpired {
		t.Errorf("a ticket that waited too long: %q", answer)
	}
	w.pass(5 * second)
	if g := w.runNext(); g.ID != "a1" || g.Attempt != 2 {
		t.Errorf("started %s, attempt %d; want the second of a1", g.ID, g.Attempt)
	}
}

func TestDropOldest(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1, time.Second), Depth: 3, OnFull: DropOldest})
	w.pool("p", 1)
	w.offers("a", 3)
	w.finish(w.start(), queue.Finish{Ending: queue.EndBack}) // a1 was started once: it stays
	w.offer(Spec{Tenant: "a", ID: "x"})
	if got := w.waiting("a"); got != "a1 a3 x" {
		t.Errorf("waiting %s, want a1 a3 x", got)
	}
	if j := w.job("a", "a2"); j.State != StateDropped {
		t.Errorf("a2 is %s", j.State)
	}
	a, err := w.admin.Tenant(t.Context(), "a")
	w.must(err)
	if a.Counters.Dropped != 1 || a.Level() != 3 {
		t.Errorf("dropped %d, level %d", a.Counters.Dropped, a.Level())
	}
	// Delayed jobs do not count as waiting longest.
	w.set("b", Policy{Depth: 1, OnFull: DropOldest})
	w.offer(Spec{Tenant: "b", ID: "later", Delay: time.Hour})
	if r := w.offer(Spec{Tenant: "b", ID: "y"}); r.Reason != RefusedFull {
		t.Errorf("offered to a bucket full of delayed jobs: %+v", r)
	}
}

func TestBlockWaitsForRoom(t *testing.T) {
	w := on(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second), Depth: 1, OnFull: Block})
	w.pool("p", 9) // so that the rate decides when to ask again
	w.offers("a", 1)

	for within := 50 * time.Millisecond; ; within *= 2 { // a busy machine may have no answer at all so soon
		ctx, cancel := context.WithTimeout(t.Context(), within)
		r, err := w.client.Offer(ctx, Spec{Tenant: "a", Type: "x"})
		cancel()
		// What the connection says, which has the same deadline, is an "i/o timeout".
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() && within < testenv.Patience {
			continue
		}
		if err != nil || r.Reason != RefusedFull {
			t.Errorf("no room until the deadline: %+v, %v; want the refusal", r, err)
		}
		break
	}

	calls := counting(w)
	answer := make(chan Result, 1)
	go func() {
		r, err := w.client.Offer(withTimeout(t), Spec{Tenant: "a", ID: "next", Type: "x"})
		if err != nil {
			t.Error(err)
		}
		answer <- r
	}()
	for calls.Load() < 3 { // it was refused and asks again
		time.Sleep(time.Millisecond)
	}
	w.next()
	if r := <-answer; r.Status != Accepted || r.Position != 1 {
		t.Errorf("after room was made: %+v", r)
	}

	// A refusal in a batch does not wait.
	if o := w.client.OfferMany(t.Context(), []Spec{{Tenant: "a", Type: "x"}}); o[0].Result.Reason != RefusedFull {
		t.Errorf("in a batch: %+v", o[0])
	}
}

func TestDuplicates(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second), Depth: 2})
	w.pool("p", 1)
	same := Spec{Tenant: "a", ID: "j", Payload: []byte("one"), Headers: map[string]string{"k": "v", "l": "w"}}
	others := []Spec{
		{Tenant: "a", ID: "j", Payload: []byte("two"), Headers: same.Headers},
		{Tenant: "a", ID: "j", Payload: same.Payload},
		{Tenant: "a", ID: "j", Payload: same.Payload, Headers: same.Headers, Type: "other"},
	}
	if r := w.offer(same); r.Status != Accepted || r.Duplicate {
		t.Fatalf("first offer: %+v", r)
	}
	again := "" // why it is refused
	look := func(when string, state State) {
		t.Helper()
		before := w.dump()
		r := w.offer(same)
		if refused := again == "dead"; refused != (r.Status == Refused) || r.Reason != again || r.Duplicate == refused || r.State != state {
			t.Errorf("%s, the same again: %+v, want state %s", when, r, state)
		}
		for _, s := range others {
			if r := w.offer(s); r.Status != Refused || r.Reason != RefusedConflict || r.RetryAfter >= 0 || r.State != state {
				t.Errorf("%s, another body: %+v", when, r)
			}
		}
		if after := w.dump(); after != before {
			t.Errorf("%s, a repeated id changed\n%s\nto\n%s", when, before, after)
		}
	}
	look("while it waits", StateWaiting)
	g := w.start()
	look("while it runs", StateRunning)
	w.finish(g, queue.Finish{Ending: queue.EndError, Delay: time.Second})
	look("while it waits out a backoff", StateDelayed)
	w.offers("a", 1)
	look("while the bucket is full", StateDelayed)
	w.pass(2 * second)
	w.finish(w.start(), queue.Finish{Ending: queue.EndDead})
	again = "dead"
	look("when it is dead", StateDead)
	if _, _, err := w.admin.RequeueDead(t.Context(), "a", "j"); err != nil {
		t.Fatal(err)
	}
	w.pass(second)
	again = ""
	for range 2 { // j, and a1
		w.finish(w.start(), queue.Finish{Ending: queue.EndOK})
	}
	look("when it is done", StateDone)
	w.pass(3601 * second) // its retention is over
	if r := w.offer(others[0]); r.Status != Accepted || r.Duplicate {
		t.Errorf("when nothing is known of it any more: %+v", r)
	}
	if r := w.offer(Spec{Tenant: "b", ID: "j"}); r.Status != Accepted || r.Duplicate {
		t.Errorf("another tenant's id: %+v", r)
	}
}

func TestUnknownTenants(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.setDownstream(DownstreamPolicy{UnknownTenants: RefuseUnknown})
	w.set("known", Policy{Depth: 5})
	before := w.dump()
	if r := w.offer(Spec{Tenant: "stranger"}); r.Reason != RefusedUnknown || r.RetryAfter >= 0 {
		t.Errorf("a stranger: %+v", r)
	}
	if w.dump() != before {
		t.Error("the stranger left a trace")
	}
	if r := w.offer(Spec{Tenant: "known"}); r.Status != Accepted {
		t.Errorf("one that was set: %+v", r)
	}
}

func TestCancelInEachState(t *testing.T) {
	rdb := redistest.Open(t)
	cancel := func(w *world) State {
		s, err := w.client.Cancel(w.t.Context(), "a", "a1")
		w.must(err)
		return s
	}
	for _, tc := range []struct {
		name    string
		get     func(w *world) *queue.Grant
		want    State
		then    queue.Finish // by its worker, if there is one
		became  string
		in, end State
	}{
		{"waiting", func(w *world) *queue.Grant { return nil }, StateCancelled, queue.Finish{}, "", StateCancelled, StateCancelled},
		{"out", func(w *world) *queue.Grant { w.release(1); return nil }, StateCancelled, queue.Finish{}, "", StateCancelled, StateCancelled},
		{"running, then fails", (*world).start, StateRunning, queue.Finish{Ending: queue.EndError}, "cancelled", StateRunning, StateCancelled},
		{"running, then is throttled", (*world).start, StateRunning, queue.Finish{Ending: queue.EndThrottled, Delay: time.Hour}, "cancelled", StateRunning, StateCancelled},
		{"running, then succeeds", (*world).start, StateRunning, queue.Finish{Ending: queue.EndOK}, "done", StateRunning, StateDone},
		{"waiting out a backoff", func(w *world) *queue.Grant {
			w.finish(w.start(), queue.Finish{Ending: queue.EndError, Delay: time.Minute})
			return nil
		}, StateCancelled, queue.Finish{}, "", StateCancelled, StateCancelled},
		{"dead", func(w *world) *queue.Grant { w.finish(w.start(), queue.Finish{Ending: queue.EndDead}); return nil }, StateDead, queue.Finish{}, "", StateDead, StateDead},
		{"done", func(w *world) *queue.Grant { w.runNext(); return nil }, StateDone, queue.Finish{}, "", StateDone, StateDone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.pool("p", 1)
			w.offers("a", 1)
			g := tc.get(w)
			for range 2 { // a repeated call answers the same
				if got := cancel(w); got != tc.want {
					t.Errorf("cancel: %s, want %s", got, tc.want)
				}
			}
			if j := w.job("a", "a1"); j.State != tc.in {
				t.Errorf("then it is %s, want %s", j.State, tc.in)
			}
			if g != nil {
				if s, _ := w.gate.Beat(t.Context(), "p", 1, time.Hour, []queue.Held{{Grant: g}}); s[0] != queue.Cancelled {
					t.Errorf("its worker is told %d, want cancelled", s[0])
				}
				if became, _ := w.finish(g, tc.then); became != tc.became {
					t.Errorf("it became %s, want %s", became, tc.became)
				}
			}
			if j := w.job("a", "a1"); j.State != tc.end {
				t.Errorf("in the end it is %s, want %s", j.State, tc.end)
			}
		})
	}
	w := newWorld(t, rdb)
	if _, err := w.client.Cancel(t.Context(), "a", "nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown job: %v", err)
	}
}

// A cancelled job whose worker vanishes, or asks for another slot, ends and does not start again.
func TestCancelledJobsDoNotComeBack(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 2)
	w.offers("a", 2)
	vanishes, asks := w.start(), w.start()
	for _, g := range []*queue.Grant{vanishes, asks} {
		_, err := w.client.Cancel(t.Context(), "a", g.ID)
		w.must(err)
	}
	if _, answer, err := w.gate.Again(t.Context(), asks, queue.NewToken("p")); err != nil || answer != queue.TicketVoid {
		t.Errorf("another slot for a cancelled job: %q, %v", answer, err)
	}
	if j := w.job("a", asks.ID); j.State != StateCancelled {
		t.Errorf("a cancelled job that asked for another slot is %s", j.State)
	}
	for range 5 {
		w.pass(5 * second)
		w.release(0)
	}
	for _, id := range strings.Fields("a1 a2") {
		if j := w.job("a", id); j.State != StateCancelled {
			t.Errorf("%s is %s, want cancelled", id, j.State)
		}
	}
}
