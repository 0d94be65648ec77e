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

// However many jobs come back at once, they leave in the order in which they were accepted, ahead
// of all that were never out.
func TestManyComeBackInOrder(t *testing.T) {
	testenv.Long(t, "fills queues with hundreds of jobs")
	t.Parallel()
	rdb := redistest.Open(t)
	const n = 150
	start := func(w *world) (grants []*queue.Grant) {
		for len(grants) < n {
			tickets, _, _ := w.release(queue.Batch)
			for _, k := range tickets {
				g, answer := w.enter(k, "p")
				if g == nil {
					w.t.Fatalf("%v: %s", k, answer)
				}
				grants = append(grants, g)
			}
			w.pass(milli)
		}
		return grants
	}
	for _, tc := range []struct {
		name string
		back func(w *world)
	}{
		{"dead and requeued", func(w *world) {
			for _, g := range start(w) {
				w.finish(g, queue.Finish{Ending: queue.EndDead})
			}
			if got, full, err := w.admin.RequeueDead(w.t.Context(), "a"); got != n || full || err != nil {
				w.t.Fatalf("%d requeued, full %v, %v", got, full, err)
			}
		}},
		{"leases lost", func(w *world) {
			start(w)
			for range 5 { // only the workers are silent, so no lease is spared
				w.pass(4 * second)
				for range n/queue.Batch + 1 {
					w.release(0)
				}
			}
		}},
		{"handed back by a stopped pool, in any order", func(w *world) {
			grants := start(w)
			for i := range grants {
				w.finish(grants[(i*77)%n], queue.Finish{Ending: queue.EndBack}) // 77 and 150 have no common factor
			}
		}},
		{"tickets lost", func(w *world) {
			for got := 0; got < n; {
				tickets, _, _ := w.release(queue.Batch)
				got += len(tickets)
				w.pass(25 * milli)
			}
			w.pass(6 * second)
			for w.rdb.ZCard(w.t.Context(), w.q.OutKey()).Val() > 0 {
				w.release(0)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.set("a", Policy{Rate: rate(1000, time.Second), MaxInFlight: 2 * n})
			w.pool("p", 2*n)
			w.offers("a", n+2)
			var want []string
			for i := range n + 2 {
				want = append(want, fmt.Sprint("a", i+1))
			}
			tc.back(w)
			got, err := waitingIDs(t.Context(), w.q, "a", 1000)
			w.must(err)
			if !slices.Equal(got, want) {
				t.Errorf("they wait as %v", got)
			}
			if j := w.job("a", "a150"); j.Position != 150 {
				t.Errorf("a150 is at place %d", j.Position)
			}
			if s := w.job("a", "a151"); s.Position != 151 {
				t.Errorf("a151, which was never out, is at place %d", s.Position)
			}
			for _, id := range want {
				if g := w.runNext(); g.ID != id {
					t.Fatalf("%s started, want %s", g.ID, id)
				}
			}
		})
	}
}

// Jobs that wait out a backoff and fall due with many others come back in the order of acceptance,
// too.
func TestManyRetriesInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Open(t))
	const n = 120
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.pool("p", n)
	w.offers("a", n)
	for i := range n {
		w.finish(w.start(), queue.Finish{Ending: queue.EndError, Delay: time.Duration(n-i) * 100 * time.Millisecond})
	}
	w.pass(60 * second)
	for i := range n {
		if g := w.runNext(); g.ID != fmt.Sprint("a", i+1) {
			t.Fatalf("start %d is of %s", i+1, g.ID)
		}
	}
}

// A job's place is told wherever it waits, and so is its expected start.
func TestPlacesBeyondTheNear(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Open(t))
	const n = 12_000
	w.set("a", Policy{Rate: rate(10, time.Second), Depth: n})
	w.pool("p", 50)
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = Spec{Tenant: "a", ID: fmt.Sprint("a", i+1), Type: "x"}
	}
	for len(specs) > 0 {
		k := min(len(specs), 1000)
		for _, o := range w.client.OfferMany(t.Context(), specs[:k]) {
			if o.Err != nil || o.Result.Status != Accepted {
				t.Fatalf("%+v", o)
			}
		}
		specs = specs[k:]
		w.pass(milli)
	}
	first := w.now
	for _, place := range []int{1, 2, 999, 1000, 1001, 1002, 5000, 10_000, 10_001, 11_999, 12_000} {
		id := fmt.Sprint("a", place)
		if j := w.job("a", id); j.Position != place {
			t.Errorf("%s is at place %d", id, j.Position)
		}
		r := w.offer(Spec{Tenant: "a", ID: id, Type: "x"})
		if late := r.ETA.UnixMicro() - first - int64(place-1)*100*milli; r.Position != place || late < -second/5 || late > second/5 {
			t.Errorf("%s: place %d, expected %d µs off", id, r.Position, late)
		}
	}
}
