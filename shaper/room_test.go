package shaper

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// commands is how many commands the server has run, including those inside scripts.
func commands(w *world) (n int64) {
	w.t.Helper()
	info, err := w.rdb.Info(w.t.Context(), "commandstats").Result()
	w.must(err)
	for line := range strings.Lines(info) {
		if _, rest, ok := strings.Cut(line, ":calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			n += atoi(calls)
		}
	}
	return n
}

// A refusal by a full bucket looks at the job's own id and nothing else, however many jobs wait and
// may expire: a flood must not keep Redis from the neighbours.
func TestRefusalsAreCheap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Start(t).Client())
	w.pool("p", 1)
	for _, tc := range []struct {
		name  string
		p     Policy
		spec  Spec
		extra int64 // commands of a single look for what may end
	}{
		{"nothing can end", Policy{Depth: 1000}, Spec{}, 0},
		{"blocking", Policy{Depth: 1000, OnFull: Block}, Spec{}, 0},
		{"the tenant's jobs expire", Policy{Depth: 1000, MaxWait: time.Hour}, Spec{}, 100},
		{"one job expires", Policy{Depth: 1000}, Spec{MaxWait: time.Hour}, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tenant := "t" + fmt.Sprint(w.now)
			w.set(tenant, tc.p)
			tc.spec.Tenant = tenant
			w.offer(tc.spec)
			specs := make([]Spec, 999)
			for i := range specs {
				specs[i] = Spec{Tenant: tenant, Type: "x"}
			}
			w.client.OfferMany(t.Context(), specs)
			dump := w.dump()
			before := commands(w)
			const n = 100
			for _, o := range w.client.OfferMany(t.Context(), specs[:n]) {
				if o.Result.Reason != RefusedFull {
					t.Fatalf("%+v", o)
				}
			}
			if got := commands(w) - before; got > 2*n+tc.extra+40 {
				t.Errorf("%d refusals took %d commands", n, got)
			}
			if w.dump() != dump {
				t.Error("a refusal left a trace")
			}
		})
	}
}

// What keeps a bucket full decides when to ask again.
func TestRetryAfterWhatKeepsItFull(t *testing.T) {
	rdb := redistest.Open(t)
	full := func(w *world) time.Duration {
		w.t.Helper()
		r := w.offer(Spec{Tenant: "a", Type: "x"})
		if r.Reason != RefusedFull {
			w.t.Fatalf("%+v", r)
		}
		if o := w.client.OfferMany(w.t.Context(), []Spec{{Tenant: "a", Type: "x"}, {Tenant: "a", Type: "x"}}); o[1].Result.RetryAfter > r.RetryAfter ||
			o[1].Result.RetryAfter < r.RetryAfter-time.Millisecond {
			w.t.Errorf("in a batch %v, alone %v", o[1].Result.RetryAfter, r.RetryAfter)
		}
		return r.RetryAfter
	}
	for _, tc := range []struct {
		name   string
		p      Policy
		before func(w *world)
		lo, hi time.Duration
	}{
		{"its rate", Policy{Rate: rate(1, time.Minute)}, func(w *world) { w.runNext(); w.offers2("a", 1) }, 59 * time.Second, time.Minute},
		{"no workers", Policy{}, func(w *world) { w.pool("p", 0) }, time.Second, time.Minute},
		{"workers that fell silent", Policy{}, func(w *world) { w.pass(2 * 3600 * second) }, time.Second, time.Minute},
		{"all in flight", Policy{MaxInFlight: 1}, func(w *world) { w.start(); w.pass(second); w.offers2("a", 1) }, 500 * time.Millisecond, time.Minute},
		{"no place free", Policy{}, func(w *world) { w.pool("p", 1); w.start(); w.pass(second); w.offers2("a", 1) }, 500 * time.Millisecond, time.Minute},
		{"paused without an end", Policy{}, func(w *world) { w.must(w.admin.Pause(w.t.Context(), "a", 0)) }, 10 * time.Second, time.Minute},
		{"paused", Policy{}, func(w *world) { w.must(w.admin.Pause(w.t.Context(), "a", 30*time.Second)) }, 29 * time.Second, 31 * time.Second},
		{"all paused", Policy{}, func(w *world) { w.must(w.admin.Pause(w.t.Context(), "", 30*time.Second)) }, 29 * time.Second, 31 * time.Second},
		{"paused for a day", Policy{}, func(w *world) { w.must(w.admin.Pause(w.t.Context(), "", 24*time.Hour)) }, time.Minute, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			tc.p.Depth = 3
			w.set("a", tc.p)
			w.pool("p", 4)
			w.offers("a", 3)
			tc.before(w)
			if got := full(w); got < tc.lo || got > tc.hi {
				t.Errorf("try again after %v, want %v to %v", got, tc.lo, tc.hi)
			}
		})
	}
	t.Run("a delayed head", func(t *testing.T) {
		w := newWorld(t, rdb)
		w.set("a", Policy{Depth: 2})
		w.pool("p", 4)
		w.offer(Spec{Tenant: "a", Delay: 40 * time.Second})
		w.offer(Spec{Tenant: "a", Delay: 20 * time.Second})
		if got := full(w); got < 19*time.Second || got > 21*time.Second {
			t.Errorf("try again after %v, want the 20 s until the first is due", got)
		}
	})
}

// A job that was delayed, and joined the bucket late, has waited longer than those before it: where it
// has waited too long it makes room all the same.
func TestOverdueBehindOthers(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Depth: 3, MaxWait: 10 * time.Second})
	w.offer(Spec{Tenant: "a", ID: "delayed", Delay: time.Second})
	w.pass(9 * second)
	w.offers("a", 2)
	w.pool("p", 1)
	w.release(1) // the first scheduler for long
	if got := w.waiting("a"); got != "a2 delayed" {
		t.Fatalf("waiting %s", got)
	}
	w.pass(3 * second)
	w.offer(Spec{Tenant: "a", ID: "third"})
	if r := w.offer(Spec{Tenant: "a", ID: "fourth"}); r.Status != Accepted || w.job("a", "delayed").State != StateExpired {
		t.Errorf("%+v, and the delayed one is %s", r, w.job("a", "delayed").State)
	}
}

// A job that comes back to a tenant that had no other still makes room when it has waited longer than
// its producer lets it.
func TestOverdueAfterItCameBack(t *testing.T) {
	unstarted := queue.Finish{Began: queue.NeverBegan}
	for name, comeBack := range map[string]func(w *world, g *queue.Grant){
		"handed back": func(w *world, g *queue.Grant) { unstarted.Ending = queue.EndBack; w.finish(g, unstarted) },
		"dead and requeued": func(w *world, g *queue.Grant) {
			unstarted.Ending = queue.EndDead
			w.finish(g, unstarted)
			if n, _, err := w.admin.RequeueDead(w.t.Context(), "a", g.ID); n != 1 || err != nil {
				w.t.Fatalf("%d requeued, %v", n, err)
			}
		},
		"mended": func(w *world, g *queue.Grant) {
			w.finish(g, queue.Finish{Ending: queue.EndBack, Began: queue.NeverBegan})
			w.must(w.rdb.Del(w.t.Context(), w.q.BackKey("a"), w.q.StateKey("a")).Err())
			w.must(w.rdb.HDel(w.t.Context(), w.q.TenantKey("a"), "own_wait").Err())
			if _, err := w.admin.Books(w.t.Context(), true); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, redistest.Open(t))
			w.set("a", Policy{Depth: 1, MaxInFlight: 1})
			w.pool("p", 1)
			w.offer(Spec{Tenant: "a", ID: "impatient", MaxWait: 5 * time.Second})
			comeBack(w, w.start())
			w.pass(6 * second)
			if r := w.offer(Spec{Tenant: "a", ID: "next"}); r.Status != Accepted || w.job("a", "impatient").State != StateExpired {
				t.Errorf("%+v, and the impatient one is %s", r, w.job("a", "impatient").State)
			}
		})
	}
}

// offers2 fills a bucket again, with made-up ids.
func (w *world) offers2(tenant string, n int) {
	for range n {
		if r := w.offer(Spec{Tenant: tenant}); r.Status != Accepted {
			w.t.Fatalf("%+v", r)
		}
	}
}

// Drop-oldest makes room where the depth was lowered, however far, and where many of the waiting
// jobs were started before; and it never drops one that was.
func TestDropOldestMakesRoom(t *testing.T) {
	rdb := redistest.Open(t)
	t.Run("the depth was lowered", func(t *testing.T) {
		w := newWorld(t, rdb)
		w.pool("p", 1)
		w.set("a", Policy{Depth: 100, OnFull: DropOldest})
		w.offers("a", 30)
		w.set("a", Policy{Depth: 5})
		if r := w.offer(Spec{Tenant: "a", ID: "new"}); r.Status != Accepted || r.Position != 5 {
			t.Errorf("%+v, want it accepted at place 5", r)
		}
		if got := w.waiting("a"); got != "a27 a28 a29 a30 new" {
			t.Errorf("waiting %s", got)
		}
	})
	t.Run("the depth was lowered far", func(t *testing.T) {
		w := newWorld(t, rdb)
		w.pool("p", 1)
		w.set("a", Policy{Depth: 1000, OnFull: DropOldest})
		w.offers("a", 400)
		w.set("a", Policy{Depth: 10})
		level := 400
		for i := range 12 {
			if r := w.offer(Spec{Tenant: "a", ID: fmt.Sprint("new", i)}); r.Status != Accepted {
				t.Fatalf("%+v", r)
			}
			info, err := w.admin.Tenant(t.Context(), "a")
			w.must(err)
			if info.Level() > level || level > 60 && info.Level() > level-40 {
				t.Fatalf("the level went from %d to %d", level, info.Level())
			}
			level = info.Level()
		}
		if level != 10 {
			t.Errorf("the level is %d after 12 offers", level)
		}
		var specs []Spec
		w.set("a", Policy{Depth: 1})
		for range 100 {
			specs = append(specs, Spec{Tenant: "a", Type: "x"})
		}
		for i, o := range w.client.OfferMany(t.Context(), specs) {
			if o.Result.Status != Accepted {
				t.Fatalf("%d of a batch: %+v", i, o)
			}
		}
		if info, err := w.admin.Tenant(t.Context(), "a"); err != nil || info.Level() != 1 {
			t.Errorf("level %d, %v", info.Level(), err)
		}
	})
	t.Run("many were started before", func(t *testing.T) {
		w := newWorld(t, rdb)
		const n = 90
		w.pool("p", n)
		w.set("a", Policy{Rate: rate(1000, time.Second), Depth: n + 2, OnFull: DropOldest})
		w.offers("a", n)
		var grants []*queue.Grant
		for range n {
			grants = append(grants, w.start())
		}
		for _, g := range grants {
			w.finish(g, queue.Finish{Ending: queue.EndBack, Began: queue.BeganAfter(0)})
		}
		w.offer(Spec{Tenant: "a", ID: "fresh1"})
		w.offer(Spec{Tenant: "a", ID: "fresh2"})
		if r := w.offer(Spec{Tenant: "a", ID: "new"}); r.Status != Accepted {
			t.Errorf("%+v", r)
		}
		if s := w.job("a", "fresh1").State; s != StateDropped {
			t.Errorf("the first that was never started is %s", s)
		}
		if s := w.job("a", "a1").State; s != StateWaiting {
			t.Errorf("one that was started is %s", s)
		}
		w.set("a", Policy{Depth: 1})
		if r := w.offer(Spec{Tenant: "a", ID: "last"}); r.Reason != RefusedFull {
			t.Errorf("with no room even if all were dropped that may be: %+v", r)
		}
	})
	t.Run("what waited too long goes first", func(t *testing.T) {
		w := newWorld(t, rdb)
		w.pool("p", 1)
		w.set("a", Policy{Depth: 3, OnFull: DropOldest})
		w.offer(Spec{Tenant: "a", ID: "old"})
		w.offer(Spec{Tenant: "a", ID: "hasty", MaxWait: time.Second})
		w.offer(Spec{Tenant: "a", ID: "young"})
		w.pass(2 * second)
		w.offer(Spec{Tenant: "a", ID: "new"})
		if got := w.waiting("a"); got != "old young new" || w.job("a", "hasty").State != StateExpired {
			t.Errorf("waiting %s, and the hasty one is %s", got, w.job("a", "hasty").State)
		}
	})
}

// A full bucket takes a job in place of one that waited too long, wherever the waits come from.
func TestExpiryMakesRoom(t *testing.T) {
	rdb := redistest.Open(t)
	for _, tc := range []struct {
		name string
		p    Policy
		wait time.Duration
	}{
		{"the tenant's wait", Policy{Depth: 2, MaxWait: time.Second}, 0},
		{"the job's own", Policy{Depth: 2}, time.Second},
		{"the job's own, longer than the tenant's", Policy{Depth: 2, MaxWait: time.Millisecond}, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.pool("p", 1)
			w.set("a", tc.p)
			w.offer(Spec{Tenant: "a", ID: "a1", MaxWait: tc.wait})
			w.offer(Spec{Tenant: "a", ID: "a2", MaxWait: time.Hour})
			w.pass(second - 10)
			if r := w.offer(Spec{Tenant: "a", ID: "a3"}); r.Reason != RefusedFull {
				t.Fatalf("before its time is over: %+v", r)
			}
			w.pass(20)
			if r := w.offer(Spec{Tenant: "a", ID: "a3"}); r.Status != Accepted || w.job("a", "a1").State != StateExpired {
				t.Errorf("after its time is over: %+v, a1 is %s", r, w.job("a", "a1").State)
			}
		})
	}
}
