package shaper

import (
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// A grant whose start never happened is no attempt and no start: the first start is attempt 1,
// whatever came before it. Every call is made twice, as if its reply had been lost.
func TestStartsAreNumberedNotGrants(t *testing.T) {
	rdb := redistest.Open(t)
	twice := func(call func()) { call(); call() }
	again := func(w *world, g *queue.Grant) string {
		token := queue.NewToken("p")
		var answer string
		twice(func() {
			_, why, err := w.gate.Again(w.t.Context(), g, token)
			w.must(err)
			if answer == "" {
				answer = why
			}
		})
		return answer
	}
	unstarted := queue.Finish{Ending: queue.EndBack, Began: queue.NeverBegan}
	for _, tc := range []struct {
		name    string
		end     func(w *world, g *queue.Grant) // what becomes of the first grant
		attempt int                            // of the next one
		started int64                          // before that
		charged int                            // the next one included
	}{
		{"handed back unstarted", func(w *world, g *queue.Grant) { twice(func() { w.finish(g, unstarted) }) }, 1, 0, 1},
		{"missed, and paused meanwhile", func(w *world, g *queue.Grant) {
			w.must(w.admin.Pause(w.t.Context(), "a", time.Second))
			if why := again(w, g); why != queue.TicketPaused {
				w.t.Errorf("asked for another slot: %q", why)
			}
		}, 1, 0, 1},
		{"handed back at a shutdown, while it ran", func(w *world, g *queue.Grant) { twice(func() { w.finish(g, queue.Finish{Ending: queue.EndBack}) }) }, 2, 1, 1},
		{"failed", func(w *world, g *queue.Grant) {
			twice(func() { w.finish(g, queue.Finish{Ending: queue.EndError, Began: queue.BeganAfter(0)}) })
		}, 2, 1, 2},
		{"ran until its worker vanished", func(w *world, g *queue.Grant) {
			twice(func() {
				_, err := w.gate.Beat(w.t.Context(), "p", 1, time.Hour, []queue.Held{{Grant: g, Begun: true}})
				w.must(err)
			})
			for range 5 {
				w.pass(4 * second)
				w.release(0)
			}
		}, 2, 1, 1},
		{"its worker vanished, and nobody knows", func(w *world, _ *queue.Grant) {
			for range 5 {
				w.pass(4 * second)
				w.release(0)
			}
		}, 2, 1, 1},
		{"granted and counted by the version before", func(w *world, g *queue.Grant) {
			line := w.rdb.HGet(w.t.Context(), w.q.StateKey("a"), "a1").Val()
			w.must(w.rdb.HSet(w.t.Context(), w.q.StateKey("a"), "a1", line[:len(line)-len(",granted ")]+" ").Err())
			w.must(w.rdb.HSet(w.t.Context(), w.q.TenantKey("a"), "started", 1).Err())
			w.finish(g, unstarted)
		}, 2, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.set("a", Policy{Rate: rate(10, time.Second)})
			w.pool("p", 1)
			w.offers("a", 1)
			started := func() int64 {
				a, err := w.admin.Tenant(t.Context(), "a")
				w.must(err)
				return a.Counters.Started
			}
			first := w.start()
			if first.Attempt != 1 || first.Charged != 1 || started() != 0 {
				t.Errorf("granted attempt %d, charged %d, %d starts; want 1, 1, 0", first.Attempt, first.Charged, started())
			}
			tc.end(w, first)
			if n := started(); n != tc.started {
				t.Errorf("%d starts, want %d", n, tc.started)
			}
			next := w.start()
			if next.Attempt != tc.attempt || next.Charged != tc.charged {
				t.Errorf("then attempt %d, charged %d; want %d, %d", next.Attempt, next.Charged, tc.attempt, tc.charged)
			}
			if became, _ := w.finish(first, queue.Finish{Ending: queue.EndOK}); became != "stale" {
				t.Errorf("the first token still owns the job: %s", became)
			}
			w.finish(next, queue.Finish{Ending: queue.EndOK, Began: queue.BeganAfter(0)})
			if n := started(); n != tc.started+1 {
				t.Errorf("%d starts in the end, want %d", n, tc.started+1)
			}
			if j := w.job("a", "a1"); j.Attempt != tc.attempt {
				t.Errorf("%d starts of the job, want %d", j.Attempt, tc.attempt)
			}
		})
	}
}

// A start that a finish grants is numbered like one that a ticket brings.
func TestChainedGrantsThatNeverStart(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.pool("p", 1)
	w.offers("a", 2)
	first := w.start()
	w.pass(milli)
	_, next := w.finish(first, queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p"), Began: queue.BeganAfter(0)})
	if next == nil || next.Attempt != 1 {
		t.Fatalf("chained: %+v, want attempt 1", next)
	}
	w.finish(next, queue.Finish{Ending: queue.EndBack, Began: queue.NeverBegan})
	if g := w.start(); g.ID != "a2" || g.Attempt != 1 || g.Charged != 1 {
		t.Errorf("%s, attempt %d, charged %d; want the first attempt of a2", g.ID, g.Attempt, g.Charged)
	}
}
