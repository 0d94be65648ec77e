package shaper

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// A scheduler mends what is wrong, even if its tenant became idle because of it, and reports it
// once, by kind. A worker keeps its job that the books had lost.
func TestSchedulerKeepsTheBooks(t *testing.T) {
	w := on(t, redistest.Open(t))
	ctx := t.Context()
	w.pool("p", 9)
	w.offers("a", 1)
	runs := w.next()
	w.must(w.rdb.ZRem(ctx, w.q.RunKey(), "a a1").Err())
	w.offer(Spec{Tenant: "b", ID: "b1", Delay: time.Hour})
	w.must(w.rdb.ZRem(ctx, w.q.LaterKey("b"), "b1").Err())
	w.release(0)
	w.must(w.rdb.ZAdd(ctx, w.q.DueKey(), redis.Z{Score: 1, Member: "b"}).Err())
	w.release(0)
	w.release(1) // b has nothing to do
	var log bytes.Buffer
	mended := make(chan []BookFault, 100)
	s, err := NewScheduler(w.rdb, w.q.Downstream, newCarrier(0), SchedulerConfig{Books: 10 * time.Millisecond, OnMended: func(f []BookFault) { mended <- f },
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w.must(err)
	w.must(s.Start(ctx))
	faults := <-mended
	s.Stop()
	got := fmt.Sprint(faults)
	if len(faults) != 2 || !strings.Contains(got, "1 × due later") || !strings.Contains(got, "1 × running without a lease") || !strings.Contains(got, "(a a1)") {
		t.Errorf("mended %v", got)
	}
	if text := log.String(); strings.Count(text, "the books were wrong") != 2 || !strings.Contains(text, "kind=running") || !strings.Contains(text, "downstream="+w.q.Downstream) {
		t.Errorf("logged %s", text)
	}
	if j := w.job("b", "b1"); j.State != StateDelayed || time.Until(j.Due) < 50*time.Minute {
		t.Errorf("b1 is %s, due in %v", j.State, time.Until(j.Due))
	}
	if standing, err := w.gate.Beat(ctx, "p", 9, time.Hour, []queue.Held{{Grant: runs, Begun: true}}); err != nil || standing[0] != queue.Owned {
		t.Errorf("its worker is told %v (%v)", standing, err)
	}
	if became, _ := w.finish(runs, queue.Finish{Ending: queue.EndOK}); became != "done" {
		t.Errorf("it is %s", became)
	}
	if faults, err := w.admin.Books(ctx, false); err != nil || len(faults) > 0 {
		t.Errorf("left: %v (%v)", faults, err)
	}
}

// A waiting job that is in no list comes back where it was, however long the list is, except that
// it is put in front of a very long one.
func TestLostFromALongList(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	for _, n := range []int{10, 3000, 12_000} {
		w := newWorld(t, rdb)
		w.set("a", Policy{Depth: 20_000})
		crowd(w, "a", n)
		before := strings.Fields(w.waiting("a"))
		at := n / 2
		w.must(rdb.LRem(t.Context(), w.q.WaitKey("a"), 1, before[at]).Err())
		w.must(rdb.RPush(t.Context(), w.q.WaitKey("a"), before[at+1]).Err()) // and one is in it twice
		if faults, err := w.admin.Books(t.Context(), true); err != nil || len(faults) == 0 {
			t.Fatalf("%d: found %v (%v)", n, faults, err)
		}
		want := strings.Join(before, " ")
		if n > 10_000 {
			want = before[at] + " " + strings.Join(before[:at], " ") + " " + strings.Join(before[at+1:], " ") + " " + before[at+1]
		}
		if got := w.waiting("a"); got != want {
			t.Errorf("%d jobs wait in another order", n)
		}
	}
}

// crowd offers n jobs to a tenant, a hundred in each call.
func crowd(w *world, tenant string, n int) {
	w.t.Helper()
	for at := 0; at < n; at += 100 {
		var specs []Spec
		for i := at; i < min(n, at+100); i++ {
			specs = append(specs, Spec{Tenant: tenant, ID: fmt.Sprint("j", i), Type: "x"})
		}
		for _, o := range w.client.OfferMany(w.t.Context(), specs) {
			if o.Err != nil || o.Result.Status != Accepted {
				w.t.Fatalf("%+v", o)
			}
		}
		w.pass(200)
	}
}

// Where nothing is wrong, a look costs a handful of commands, however many tenants are known and
// idle.
func TestBooksOfIdleTenantsCostNothing(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.offers("busy", 3)
	for i := range 300 {
		w.must(w.rdb.ZAdd(t.Context(), w.q.TenantsKey(), redis.Z{Score: float64(w.now - 3600*second), Member: fmt.Sprint("t", i)}).Err())
	}
	n := counting(w)
	faults, err := (&bookkeeper{q: w.q, mend: true}).pass(context.Background(), time.UnixMicro(w.now-60*second))
	if err != nil || len(faults) > 0 {
		t.Errorf("found %v (%v)", faults, err)
	}
	if n.Load() > 9 { // five books are listed, and two comparisons made, for each of which the script may have to be sent first
		t.Errorf("%d commands", n.Load())
	}
}
