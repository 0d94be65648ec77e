package shaper

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

func TestDeadJobs(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second), Depth: 10, MaxAttempts: 2})
	w.pool("p", 9)
	for _, id := range []string{"failed", "refused", "crashed", "throttled"} {
		w.offer(Spec{Tenant: "a", ID: id})
	}
	for i := 0; i < 40 && w.job("a", "crashed").State != StateDead; i++ {
		w.pass(5 * second)
		tickets, _, _ := w.release(10)
		for _, k := range tickets {
			g, _ := w.enter(k, "p")
			if g == nil {
				continue
			}
			switch g.ID {
			case "failed":
				w.finish(g, queue.Finish{Ending: queue.EndError, Delay: time.Millisecond, Text: "no luck"})
			case "refused":
				w.finish(g, queue.Finish{Ending: queue.EndDead, Text: "never"})
			case "throttled": // is not charged, as often as it is
				w.finish(g, queue.Finish{Ending: queue.EndThrottled, Delay: time.Millisecond})
			}
		}
	}
	for _, want := range []Job{
		{ID: "failed", Attempt: 2, Charged: 2, Reason: ReasonFailed, Error: "no luck"},
		{ID: "refused", Attempt: 1, Charged: 1, Reason: ReasonRefused, Error: "never"},
		{ID: "crashed", Attempt: 3, Crashes: 3, Reason: ReasonCrashed, Error: "its worker vanished 3 times"},
	} {
		j := w.job("a", want.ID)
		if j.State != StateDead || j.Attempt != want.Attempt || j.Charged != want.Charged || j.Crashes != want.Crashes ||
			j.Reason != want.Reason || j.Error != want.Error || j.EndedAt.IsZero() || string(j.Type) == "" {
			t.Errorf("%s: %+v", want.ID, j)
		}
	}
	if j := w.job("a", "throttled"); j.State == StateDead || j.Attempt < 3 || j.Charged > 1 {
		t.Errorf("throttled: %+v", j)
	}
	// Requeued jobs have all their attempts again, and come back in the order of acceptance, if
	// there is room.
	w.must(w.admin.Pause(t.Context(), "a", 0))
	if n, full, err := w.admin.RequeueDead(t.Context(), "a", "crashed", "failed"); n != 2 || full || err != nil {
		t.Errorf("requeued %d, full %v, %v", n, full, err)
	}
	w.release(0)
	if got := w.waiting("a"); !strings.HasPrefix(got, "failed crashed") {
		t.Errorf("waiting %s, want failed before crashed", got)
	}
	w.set("a", Policy{Depth: 1})
	if n, full, err := w.admin.RequeueDead(t.Context(), "a"); n != 0 || !full || err != nil {
		t.Errorf("requeued %d to a full bucket, full %v, %v", n, full, err)
	}
	if n, err := w.admin.RemoveDead(t.Context(), "a"); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if j := w.job("a", "refused"); j.State != StateRemoved || !j.State.Ended() || j.EndedAt.IsZero() {
		t.Errorf("a removed job: %+v", j)
	}
}

// The list of the dead is bounded; the oldest are forgotten first, a batch with each that is added.
func TestDeadCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.pool("p", 1)
	ctx := t.Context()
	pipe := w.rdb.Pipeline()
	for i := range 10_040 {
		id := fmt.Sprint("old", i)
		pipe.ZAdd(ctx, w.q.DeadKey("a"), redis.Z{Score: float64(w.now - int64(20_000-i)), Member: id})
		pipe.HSet(ctx, w.q.JobsKey("a"), id, "1 0 0 0 0 .x\ntest\n\n")
		pipe.HSet(ctx, w.q.StateKey("a"), id, "x 1 1 0 0 t 1 1 - failed no")
	}
	_, err := pipe.Exec(ctx)
	w.must(err)
	w.offers("a", 1)
	w.finish(w.start(), queue.Finish{Ending: queue.EndDead})
	dead := w.rdb.ZCard(ctx, w.q.DeadKey("a")).Val()
	bodies, states := w.rdb.HLen(ctx, w.q.JobsKey("a")).Val(), w.rdb.HLen(ctx, w.q.StateKey("a")).Val()
	if dead != 10_000 || bodies != dead || states != dead {
		t.Errorf("%d dead, %d bodies, %d states; want 10000 of each", dead, bodies, states)
	}
	if n := w.rdb.ZScore(ctx, w.q.DeadKey("a"), "a1").Val(); n == 0 {
		t.Error("the latest is not among them")
	}
	w.pass(91 * 24 * hour)
	w.offers("b", 1)
	w.pass(second)
	w.offer(Spec{Tenant: "a", ID: "again"})
	for {
		if g := w.start(); g.ID == "again" {
			w.finish(g, queue.Finish{Ending: queue.EndDead})
			break
		}
	}
	if n := w.rdb.ZCard(ctx, w.q.DeadKey("a")).Val(); n != 9_951 {
		t.Errorf("%d dead, want a batch of those older than 90 days gone", n)
	}
}
