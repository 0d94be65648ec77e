package shaper

import (
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// Jobs that come back keep the order in which they were accepted, ahead of what was never out.
func TestWhatComesBackKeepsItsOrder(t *testing.T) {
	rdb := redistest.Open(t)
	fast := Policy{Rate: rate(1000, time.Second)}
	for _, tc := range []struct {
		name string
		back func(w *world, tickets []queue.Ticket) // brings all of them back
	}{
		{"lost tickets", func(w *world, _ []queue.Ticket) { w.pass(6 * second); w.release(0) }},
		{"given back", func(w *world, tickets []queue.Ticket) {
			for _, i := range []int{1, 2, 0} {
				w.must(w.gate.GiveBack(w.t.Context(), tickets[i]))
			}
		}},
		{"throttled", func(w *world, tickets []queue.Ticket) {
			finishAll(w, tickets, queue.Finish{Ending: queue.EndThrottled, Delay: time.Second})
		}},
		{"handed back at a shutdown", func(w *world, tickets []queue.Ticket) { finishAll(w, tickets, queue.Finish{Ending: queue.EndBack}) }},
		{"failed", func(w *world, tickets []queue.Ticket) {
			finishAll(w, tickets, queue.Finish{Ending: queue.EndError, Delay: time.Second})
			w.pass(2 * second)
			w.release(0)
			w.pool("p", 0) // so that a release looks at the tenant and takes nothing
			w.release(1)
		}},
		{"crashed", func(w *world, tickets []queue.Ticket) {
			finishNone(w, tickets)
			for range 4 {
				w.pass(5 * second)
				w.release(0)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.set("a", fast)
			w.pool("p", 3)
			w.offers("a", 5)
			tickets, _, _ := w.release(10)
			if len(tickets) != 3 {
				t.Fatalf("%d tickets, want 3, one for each place", len(tickets))
			}
			tc.back(w, tickets)
			want := "a1 a2 a3 a4 a5"
			if tc.name == "failed" {
				w.pool("p", 3)
				var got []string
				for range 5 {
					got = append(got, w.runNext().ID)
				}
				if g := strings.Join(got, " "); g != want {
					t.Errorf("started %s, want %s", g, want)
				}
				return
			}
			if got := w.waiting("a"); got != want {
				t.Errorf("waiting %s, want %s", got, want)
			}
		})
	}
}

func finishNone(w *world, tickets []queue.Ticket) (out []*queue.Grant) {
	for _, t := range tickets {
		g, answer := w.enter(t, "p")
		if g == nil {
			w.t.Fatalf("no slot for %v: %s", t, answer)
		}
		out = append(out, g)
	}
	return out
}

// finishAll starts all tickets and ends them, the last one first.
func finishAll(w *world, tickets []queue.Ticket, f queue.Finish) {
	grants := finishNone(w, tickets)
	for i := len(grants) - 1; i >= 0; i-- {
		w.finish(grants[i], f)
	}
}
