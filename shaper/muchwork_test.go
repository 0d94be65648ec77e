package shaper

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// What is too much for one call makes nobody else late: a tenant whose turn comes keeps its rate.
func TestMuchWorkDelaysNobody(t *testing.T) {
	testenv.Long(t, "has tens of thousands of jobs come due")
	t.Parallel()
	fast := DownstreamPolicy{Defaults: Policy{Rate: rate(1_000_000, time.Second)}}
	for _, tc := range []struct {
		name   string
		before func(w *world)
	}{
		{"backoffs end", func(w *world) { w.backOff(many(50), 200, w.now+second/4) }},
		{"backoffs of more tenants than a call handles end", func(w *world) { w.backOff(many(200), 40, w.now+second/4) }},
		{"jobs expire", func(w *world) {
			w.setDownstream(fast)
			w.fill(many(50), 200, Spec{MaxWait: time.Second / 4})
			w.pass(second)
		}},
		{"jobs of more tenants than a call handles expire", func(w *world) {
			w.setDownstream(fast)
			w.fill(many(200), 50, Spec{MaxWait: time.Second / 4})
			w.pass(second)
		}},
		{"tickets are lost", func(w *world) {
			w.setDownstream(fast)
			w.fill(many(50), 20, Spec{})
			w.pass(second)
			if n := len(w.releases(queue.Batch)); n != 1000 {
				w.t.Fatalf("%d tickets are out, want 1000", n)
			}
			w.pass(ticketTTL.Microseconds() - second/4)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, redistest.Start(t).Client())
			w.setDownstream(DownstreamPolicy{Defaults: Policy{Rate: rate(1, time.Hour), Depth: 1000, MaxInFlight: 1000}})
			w.pool("p", 1_000_000)
			tc.before(w)
			w.set("z", Policy{Rate: rate(20, time.Second), MaxWait: time.Hour})
			offered := w.now
			w.offers("z", 40)
			busiest := 0
			var last *queue.Grant
			for starts, calls := 0, 0; starts < 30; {
				tickets, wait, more := w.release(queue.Batch)
				calls++
				for _, k := range tickets {
					g, _ := w.enter(k, "p")
					if g == nil || g.Tenant != "z" {
						continue
					}
					if last == nil && g.Slot.UnixMicro()-offered > 50*milli {
						t.Fatalf("the first start is %d µs late", g.Slot.UnixMicro()-offered)
					}
					if last != nil && g.Slot.Sub(last.Slot) != 50*time.Millisecond {
						t.Fatalf("start %d is %v after the one before, want 50ms", starts+1, g.Slot.Sub(last.Slot))
					}
					starts, last = starts+1, g
					w.finish(g, queue.Finish{Ending: queue.EndOK})
				}
				if more {
					busiest = max(busiest, calls)
					w.pass(3 * milli) // what a call takes, and more
				} else {
					calls = 0
					w.pass(max(int64(wait/time.Microsecond), milli))
				}
			}
			if busiest < 15 {
				t.Errorf("only %d calls in a row had more to do: that is not much", busiest)
			}
		})
	}
}

// However many tickets of a tenant are lost at once, its jobs start in their order.
func TestManyLostTicketsKeepTheOrder(t *testing.T) {
	t.Parallel()
	const n = 400
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1_000_000, time.Second), MaxInFlight: 1000})
	w.pool("p", 1000)
	w.offers("a", n)
	w.pass(second)
	for range 2 { // as many are out as may be while none comes to the gate, the others wait
		w.release(queue.Batch)
	}
	w.pass(2 * ticketTTL.Microseconds())
	for i := 1; i <= n; {
		tickets, _, _ := w.release(queue.Batch)
		for _, k := range tickets {
			if want := fmt.Sprint("a", i); k.ID != want {
				t.Fatalf("%s leaves, want %s", k.ID, want)
			}
			w.enter(k, "p")
			i++
		}
		w.pass(milli)
	}
}

// After steps back of the clock each backoff ends when it would have, whether it began before them,
// between them, or while only some of the tenant's backoffs had been brought nearer; and a delayed
// job stays due at its instant.
func TestManyBackoffsAfterAStep(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	const n = 300
	for _, step := range []int64{3600 * second, 7 * second, 5} {
		w := newWorld(t, rdb)
		w.set("a", Policy{Rate: rate(1_000_000, time.Second), MaxInFlight: 1000})
		w.pool("p", 1000)
		w.offers("a", 4)
		var running []*queue.Grant
		for range 4 {
			running = append(running, w.start())
		}
		w.backOff([]string{"a"}, n, w.now+10*second)
		later := w.q.LaterKey("a")
		for i := range n {
			id, due := fmt.Sprint("a.", i+1), w.now+10*second+int64(i/3)*milli // three at a time
			w.must(rdb.ZAdd(t.Context(), later, redis.Z{Score: float64(due), Member: id}).Err())
		}
		fixed, instant := map[string]int64{}, w.now+11*second
		for i := range 120 {
			id := fmt.Sprint("delayed", i)
			w.offer(Spec{Tenant: "a", ID: id, Delay: time.Duration(instant-w.now) * time.Microsecond})
			fixed[id] = instant
		}
		begun := w.now
		passed := int64(0)
		pass := func(us int64) { w.pass(us); passed += us }
		due := map[string]int64{} // on a clock that never stepped
		scores, err := rdb.ZRangeWithScores(t.Context(), later, 0, -1).Result()
		w.must(err)
		for _, z := range scores {
			due[z.Member.(string)] = int64(z.Score)
		}
		retry := func(delay time.Duration) {
			g := running[0]
			running = running[1:]
			due[g.ID] = begun + passed + delay.Microseconds()
			if became, _ := w.finish(g, queue.Finish{Ending: queue.EndError, Delay: delay}); became != "retry" {
				t.Fatal(became)
			}
		}
		w.release(1)
		w.pass(-step)
		retry(10*time.Second + 33*time.Millisecond)
		w.release(1)
		pass(milli)
		retry(10*time.Second + 50*time.Millisecond)
		w.release(1) // else a small step is not seen
		w.pass(-step)
		w.release(1)
		retry(10 * time.Second)
		for more := true; more; {
			_, _, more = w.release(1)
			pass(milli)
			if len(running) > 0 {
				retry(10 * time.Second)
			}
		}
		scores, err = rdb.ZRangeWithScores(t.Context(), later, 0, -1).Result()
		w.must(err)
		for _, z := range scores {
			id := z.Member.(string)
			want, stays := fixed[id]
			if !stays {
				want = due[id] - 2*step
			}
			if int64(z.Score) != want {
				t.Errorf("after two steps of %d µs %s is due %d µs late", step, id, int64(z.Score)-want)
			}
		}
		if len(scores) != n+4+120 {
			t.Errorf("%d are due later", len(scores))
		}
	}
}

// Offers that are too much for one call are accepted in their order all the same, each once.
func TestDearOffersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Open(t))
	w.setDownstream(DownstreamPolicy{Admit: rules(t, "fixed_window 100000/d name=a", "fixed_window 100000/d name=b", "fixed_window 100000/d name=c")})
	var specs []Spec
	var want []string
	for i := range 700 {
		specs = append(specs, Spec{Tenant: "a", ID: fmt.Sprint("j", i), Type: "test"}, Spec{Tenant: fmt.Sprint("b", i%20), Type: "test"})
		want = append(want, fmt.Sprint("j", i))
	}
	calls := counting(w)
	for i, o := range w.client.OfferMany(t.Context(), specs) {
		if o.Err != nil || o.Result.Status != Accepted || o.Result.Duplicate || o.Result.Tenant != specs[i].Tenant || specs[i].ID != "" && o.Result.ID != specs[i].ID {
			t.Fatalf("%d: %+v", i, o)
		}
	}
	if calls.Load() < 8 {
		t.Errorf("%d round trips: no call left anything over", calls.Load())
	}
	if got := w.waiting("a"); got != strings.Join(want, " ") {
		t.Errorf("in another order: %s", got)
	}
}

// Reports that are too much for one call are all answered.
func TestDearReportsAreAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Open(t))
	w.setDownstream(DownstreamPolicy{Defaults: Policy{Rate: rate(1_000_000, time.Second)}})
	w.pool("p", 1000)
	w.fill(many(50), 16, Spec{})
	w.pass(second)
	var running []*queue.Grant
	for len(running) < 400 {
		tickets, _, _ := w.release(queue.Batch)
		for _, k := range tickets {
			g, _ := w.enter(k, "p")
			running = append(running, g)
		}
	}
	answers := make(chan string)
	for _, g := range running { // those that come while two calls are under way share the next one
		go func() {
			end, err := w.gate.Finish(t.Context(), g, queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p")})
			answers <- fmt.Sprint(end.Became, " ", err)
		}()
	}
	for range running {
		if got := <-answers; got != "done <nil>" {
			t.Error(got)
		}
	}
	for _, g := range running {
		if j := w.job(g.Tenant, g.ID); j.State != StateDone {
			t.Errorf("%s is %s", g.ID, j.State)
		}
	}
}

// However many jobs whose tickets are out have expired, those behind them start in their order.
func TestManyExpiredTicketsKeepTheOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1_000_000, time.Second), MaxInFlight: 1000})
	w.pool("p", 1000)
	w.offers("a", 10)
	var running []*queue.Grant
	for range 10 {
		running = append(running, w.start())
	}
	for i := range 100 {
		w.offer(Spec{Tenant: "a", ID: fmt.Sprint("late", i), MaxWait: time.Second})
	}
	for i := range 3 {
		w.offer(Spec{Tenant: "a", ID: fmt.Sprint("b", i+1)})
	}
	w.pass(milli)
	w.credit()
	for out := 0; out < 102; { // so b3 waits
		tickets, _, _ := w.release(min(queue.Batch, 102-out))
		out += len(tickets)
	}
	w.pass(1500 * milli)
	var started []string
	for _, g := range running {
		if _, next := w.finish(g, queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p")}); next != nil {
			started = append(started, next.ID)
		}
	}
	if got := strings.Join(started, " "); got != "b1 b2 b3" {
		t.Errorf("started %s, want b1 b2 b3", got)
	}
}
