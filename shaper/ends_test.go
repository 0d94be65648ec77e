package shaper

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// fast is a policy that keeps nothing waiting.
var fast = Policy{Rate: rate(1_000_000, time.Second), Depth: 1_000_000}

func order(n int) string { return fmt.Sprintf("order-2026-%08d-x", n) }

// orders offers jobs of a tenant by their numbers, which must be new.
func (w *world) orders(tenant string, from, to int) {
	w.t.Helper()
	specs := make([]Spec, 0, to-from)
	for i := from; i < to; i++ {
		specs = append(specs, Spec{Tenant: tenant, Type: "mail:send", ID: order(i), Payload: []byte("x")})
	}
	for _, o := range w.client.OfferMany(w.t.Context(), specs) {
		if o.Err != nil || o.Result.Status != Accepted || o.Result.Duplicate {
			w.t.Fatalf("%+v", o)
		}
	}
}

// drain runs whatever waits to its end, and returns how many jobs that were.
func (w *world) drain(after func(n int)) (n int) {
	w.t.Helper()
	for g := w.start(); g != nil; {
		w.now = max(w.now, g.Slot.UnixMicro())
		_, g = w.finish(g, queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p")})
		n++
		after(n)
	}
	return n
}

func nothing(int) {}

// ends are the keys that ends are kept under, and how many of them there are.
func (w *world) ends() (keys []string, n int) {
	w.t.Helper()
	pages, err := w.rdb.Keys(w.t.Context(), w.q.Prefix+"k:*").Result()
	w.must(err)
	for _, k := range pages {
		l, err := w.rdb.LLen(w.t.Context(), k).Result()
		w.must(err)
		n += int(l) / 2
	}
	if counted := w.counted("ends"); counted != int64(n) {
		w.t.Errorf("%d ends are kept, and counted as %d", n, counted)
	}
	if indexed, err := w.rdb.ZCard(w.t.Context(), w.q.EndsKey()).Result(); err != nil || int(indexed) != len(pages) {
		w.t.Errorf("%d pages, and %d in the index (%v)", len(pages), indexed, err)
	}
	return append(pages, w.q.EndsKey()), n
}

// counted reads a count of the downstream.
func (w *world) counted(field string) int64 {
	w.t.Helper()
	s, err := w.rdb.HGet(w.t.Context(), w.q.DownstreamKey(), field).Result()
	w.must(err)
	return atoi(s)
}

// memory is how much of it the server uses.
func (w *world) memory() int64 {
	w.t.Helper()
	info, err := w.rdb.Info(w.t.Context(), "memory").Result()
	w.must(err)
	_, rest, _ := strings.Cut(info, "used_memory:")
	n, _, _ := strings.Cut(rest, "\r")
	return atoi(n)
}

// knows tells whether a job of an order would be taken for one that is done.
func (w *world) knows(tenant string, n int) bool {
	w.t.Helper()
	j, err := w.client.Find(w.t.Context(), tenant, order(n))
	if err != nil && !errors.Is(err, ErrNotFound) {
		w.t.Fatal(err)
	}
	return j.State == StateDone
}

// An end takes at most 120 bytes, with all that is needed to find it and to forget it in order.
func TestEndsAreSmall(t *testing.T) {
	testenv.Long(t, "ends thousands of jobs")
	t.Parallel()
	w := newWorld(t, redistest.Start(t).Client())
	w.setDownstream(DownstreamPolicy{Defaults: fast})
	w.pool("p", 4)
	for n := 0; n < 5000; n += 1000 {
		w.orders("acme", n, n+1000)
		w.drain(nothing)
		w.pass(second)
	}
	keys, n := w.ends()
	if n != 5000 {
		t.Fatalf("%d ends", n)
	}
	before := w.memory()
	w.must(w.rdb.Del(t.Context(), keys...).Err())
	each := float64(before-w.memory()) / 5000
	t.Logf("%.1f bytes an end, %d keys", each, len(keys))
	if each > 120 || each < 60 {
		t.Errorf("%.1f bytes an end", each)
	}
}

// Whatever is offered and drained, every id is known, from one page of ends to many.
func TestEveryEndIsFound(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.setDownstream(DownstreamPolicy{Defaults: fast})
	w.pool("p", 4)
	w.orders("a", 0, 1000)
	w.drain(nothing)
	for i := range 1000 {
		if !w.knows("a", i) {
			t.Fatalf("job %d of 1000 is not known", i)
		}
	}
	job, err := w.client.Find(t.Context(), "a", order(0))
	if err != nil || job.Type != "mail:send" || job.Attempt != 1 || job.Charged != 1 || job.Slot.IsZero() || job.EndedAt.IsZero() || job.Accepted.IsZero() {
		t.Errorf("%+v, %v", job, err)
	}
	if r := w.offer(Spec{Tenant: "a", Type: "mail:send", ID: order(500), Payload: []byte("x")}); !r.Duplicate || r.State != StateDone {
		t.Errorf("offered again: %+v", r)
	}
	if r := w.offer(Spec{Tenant: "a", Type: "mail:send", ID: order(500), Payload: []byte("y")}); r.Reason != RefusedConflict {
		t.Errorf("offered with another body: %+v", r)
	}
	if keys, n := w.ends(); n != 1000 || len(keys) < 10 {
		t.Errorf("%d ends in %d keys", n, len(keys))
	}
	// When their time is over schedulers forget them, though nothing ends any more.
	w.pass(2 * 3600 * second)
	for range 400 {
		w.release(1)
	}
	if keys, n := w.ends(); n != 0 || len(keys) != 1 {
		t.Errorf("%d ends in %d keys after their time", n, len(keys))
	}
	w.orders("a", 500, 501)
}

// A tenant, and a downstream, keep no more ends than they may: the oldest go first, are counted, and
// their ids are new.
func TestOldestEndsGoFirst(t *testing.T) {
	rdb := redistest.Open(t)
	t.Run("of a tenant", func(t *testing.T) {
		w := newWorld(t, rdb)
		w.setDownstream(DownstreamPolicy{Defaults: fast})
		w.set("few", Policy{MaxEnds: 10})
		w.pool("p", 4)
		w.orders("few", 0, 25)
		w.drain(nothing)
		for i := range 25 {
			if got := w.knows("few", i); got != (i >= 15) {
				t.Errorf("job %d is known: %v", i, got)
			}
		}
		if _, n := w.ends(); n != 10 || w.counted("evicted") != 15 {
			t.Errorf("%d ends, %d went early", n, w.counted("evicted"))
		}
		s, err := w.admin.Stats(t.Context(), true)
		w.must(err)
		if s.Counters.Evicted != 15 || s.ByTenant[0].Counters.Evicted != 15 {
			t.Errorf("counted %d, and %d of the tenant", s.Counters.Evicted, s.ByTenant[0].Counters.Evicted)
		}
		w.orders("few", 14, 15)
	})
	t.Run("of a tenant with many", func(t *testing.T) {
		w := newWorld(t, rdb)
		w.setDownstream(DownstreamPolicy{Defaults: fast})
		w.set("many", Policy{MaxEnds: 1000})
		w.pool("p", 4)
		w.orders("many", 0, 3000)
		most := 0
		w.drain(func(n int) {
			if n%100 == 0 {
				_, kept := w.ends()
				most = max(most, kept)
			}
		})
		if most > 1000 || most < 900 {
			t.Errorf("up to %d ends, want 1000 at most, and most of them", most)
		}
		for i := range 1000 {
			if i < 500 && (w.knows("many", i) || !w.knows("many", 2999-i)) {
				t.Fatalf("the %dth is known, or the %dth is not", i, 2999-i)
			}
		}
	})
	t.Run("of a downstream", func(t *testing.T) {
		w := newWorld(t, rdb)
		w.setDownstream(DownstreamPolicy{MaxEnds: 100, Defaults: fast})
		w.pool("p", 4)
		for i := range 15 {
			w.orders(fmt.Sprint("t", i%3), 10*i, 10*i+10)
			w.drain(nothing)
			w.pass(second)
		}
		for i := range 150 {
			if got := w.knows(fmt.Sprint("t", i/10%3), i); got != (i >= 50) {
				t.Errorf("job %d is known: %v", i, got)
			}
		}
		if _, n := w.ends(); n != 100 || w.counted("evicted") != 50 {
			t.Errorf("%d ends, %d went early", n, w.counted("evicted"))
		}
		w.setDownstream(DownstreamPolicy{MaxEnds: 20, Defaults: fast}) // fewer from now on
		for range 30 {
			w.release(1)
		}
		if _, n := w.ends(); n != 20 {
			t.Errorf("%d ends where 20 are allowed", n)
		}
	})
}

// A job's own retention holds, whatever its tenant's is, and brings its result with it; no other job
// has one.
func TestRetentionOfAJob(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Retention: time.Hour})
	w.pool("p", 4)
	retention := map[string]time.Duration{"short": time.Minute, "usual": 0, "long": 24 * time.Hour}
	for id, own := range retention {
		w.offer(Spec{Tenant: "a", ID: id, Retention: own})
		w.finish(w.start(), queue.Finish{Ending: queue.EndOK, Text: "result of " + id})
		w.pass(second)
	}
	want := map[string]string{"short": "result of short", "usual": "", "long": "result of long"}
	for id, text := range want {
		if j := w.job("a", id); j.State != StateDone || string(j.Result) != text {
			t.Errorf("%s: %+v", id, j)
		}
	}
	if ttl := w.rdb.PTTL(t.Context(), w.q.EndKey("a", "long")).Val(); ttl < 23*time.Hour || ttl > 24*time.Hour {
		t.Errorf("the result of the long one is kept for %v", ttl)
	}
	// A result goes when its time is over by the server's clock, which no test moves.
	w.must(w.rdb.Del(t.Context(), w.q.EndKey("a", "short"), w.q.EndKey("a", "long")).Err())
	for _, at := range []struct {
		passed int64
		known  string
	}{{50, "short usual long"}, {20, "usual long"}, {3600, "long"}, {82000, "long"}, {1000, ""}} {
		w.pass(at.passed * second)
		for id := range retention {
			_, err := w.client.Find(t.Context(), "a", id)
			if known := strings.Contains(at.known, id); (err == nil) != known {
				t.Errorf("%d s later %s: %v, want it known: %v", at.passed, id, err, known)
			}
		}
	}
}

// What an older version kept of ended jobs is known until its time is over.
func TestEndsOfOlderVersions(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 4)
	spec := Spec{Tenant: "a", ID: "old", Type: "mail", Retention: time.Hour}
	w.offer(spec)
	g := w.start()
	w.finish(g, queue.Finish{Ending: queue.EndOK, Text: "result"})
	keys, _ := w.ends()
	w.must(w.rdb.Del(t.Context(), keys...).Err()) // as an older version left it
	if j := w.job("a", "old"); j.State != StateDone || j.Type != "mail" || string(j.Result) != "result" {
		t.Errorf("%+v", j)
	}
	spec.Retention = 0
	if r := w.offer(spec); !r.Duplicate || r.State != StateDone {
		t.Errorf("offered again: %+v", r)
	}
	if became, _ := w.finish(g, queue.Finish{Ending: queue.EndOK}); became != "done" {
		t.Errorf("reported again: %s", became)
	}
	w.offers("a", 1)
	if r := w.offer(spec); !r.Duplicate { // behind others
		t.Errorf("offered again while others wait: %+v", r)
	}
}

// What waits has paid for its end: a queue that filled Redis takes less and less memory while it
// drains. So from when a little has left offers are accepted, once and again.
func TestDrainingMakesRoom(t *testing.T) {
	testenv.Long(t, "fills and drains a Redis twice")
	t.Parallel()
	w := newWorld(t, redistest.Start(t).Client())
	w.setDownstream(DownstreamPolicy{Defaults: fast})
	w.set("a", Policy{MaxEnds: 2000})
	w.pool("p", 4)
	w.orders("a", 0, 1)
	w.drain(nothing)
	w.must(w.rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	w.must(w.rdb.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(w.memory()+1_000_000)).Err())
	for round := range 2 {
		offered := 0
		for full := false; !full; {
			specs := make([]Spec, 200)
			for i := range specs {
				specs[i] = Spec{Tenant: "a", Type: "x", ID: fmt.Sprint(round, ".", offered+i), Payload: []byte("x")}
			}
			for _, o := range w.client.OfferMany(t.Context(), specs) {
				w.must(o.Err)
				if full = o.Result.Reason == RefusedMemory; !full {
					offered++
				}
			}
		}
		if offered < 3000 {
			t.Fatalf("round %d: %d jobs fill it", round, offered)
		}
		refused := 0
		w.drain(func(n int) {
			if n%100 != 0 || n < offered/10 || n > offered {
				return
			}
			if r := w.offer(Spec{Tenant: "a", Type: "x", Payload: []byte("x")}); r.Status != Accepted {
				refused++
			}
		})
		if refused > 0 {
			t.Errorf("round %d: of %d offers while %d jobs drained, %d were refused", round, offered/100, offered, refused)
		}
	}
}
