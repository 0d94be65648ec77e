package shaper

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// fill makes the server refuse whatever needs memory.
func fill(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := t.Context()
	if err := rdb.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(ctx, "x", "y", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Fatalf("the server still takes writes: %v", err)
	}
}

// With no memory left new jobs are refused and leave nothing behind, and those that were accepted
// are run to an end.
func TestStoreWithoutMemory(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	w := newWorld(t, rdb)
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.pool("p", 4)
	w.offers("a", 12)
	first := w.start()
	fill(t, rdb)
	before := w.dump()
	for _, s := range []Spec{
		{Tenant: "a", Type: "x"},                       // behind others
		{Tenant: "new", Type: "x"},                     // the first of its tenant
		{Tenant: "new", Type: "x", Delay: time.Second}, // for later
	} {
		r := w.offer(s)
		if r.Status != Refused || r.Reason != RefusedMemory || r.RetryAfter <= 0 {
			t.Errorf("offer to %s: %+v, want a refusal for want of memory", s.Tenant, r)
		}
	}
	for _, o := range w.client.OfferMany(t.Context(), []Spec{{Tenant: "a", Type: "x"}, {Tenant: "b", Type: "x"}}) {
		if o.Err != nil || o.Result.Reason != RefusedMemory {
			t.Errorf("offered in a batch: %+v", o)
		}
	}
	if after := w.dump(); after != before {
		t.Errorf("refused jobs left\n%s\nof\n%s", after, before)
	}

	s, err := w.gate.Beat(t.Context(), "p", 4, time.Minute, []queue.Held{{Grant: first}})
	if err != nil || s[0] != queue.Owned {
		t.Errorf("beat: %v, %v", s, err)
	}
	if became, _ := w.finish(first, queue.Finish{Ending: queue.EndError, Delay: time.Millisecond, Text: "no"}); became != "retry" {
		t.Errorf("finish: %s, want retry", became)
	}
	tickets, _, _ := w.release(1)
	if len(tickets) != 1 {
		t.Fatalf("%d tickets", len(tickets))
	}
	w.must(w.gate.GiveBack(t.Context(), tickets[0]))
	w.pass(second)
	ends := map[string]bool{}
	for g := w.start(); ; {
		w.now = max(w.now, g.Slot.UnixMicro())
		_, next := w.finish(g, queue.Finish{Ending: queue.EndOK, Text: "result", Next: queue.NewToken("p")})
		ends[g.ID] = true
		if g = next; g == nil {
			if len(ends) == 12 {
				break
			}
			g = w.start()
		}
	}
	for i := range 12 {
		if j := w.job("a", fmt.Sprint("a", i+1)); j.State != StateDone {
			t.Errorf("job %s is %s", j.ID, j.State)
		}
	}
	// An operator's orders are carried out too: they are what helps.
	w.must(w.admin.Pause(context.Background(), "a", 0))
	w.set("a", Policy{Depth: 5})
	if _, err := w.client.Cancel(t.Context(), "a", "a1"); err != nil {
		t.Error(err)
	}
}
