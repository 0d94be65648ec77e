package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// ended waits until a job has come to an end that no handler reports, and writes it down.
func (r *rig) ended(tenant, id string, state shaper.State, outcome string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	job, err := r.client.Wait(ctx, tenant, id)
	r.must(err)
	if job.State != state {
		r.t.Errorf("job %s is %s, want %s", id, job.State, state)
	}
	r.must(r.rec.Record(history.Event{Kind: history.End, Tenant: tenant, ID: id, Outcome: outcome}))
}

// TestSameIDIsOneJob offers a job again, while it waits and when it is done, and another one under
// its id.
func TestSameIDIsOneJob(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t)
	r.tenant("a", rate(20))
	same := shaper.Spec{Tenant: "a", ID: "same", Type: "play", Payload: play{}.bytes()}
	other := same
	other.Payload = play{For: time.Millisecond}.bytes()
	again := func(when string) {
		t.Helper()
		if result, err := r.client.Offer(ctx, same); err != nil || result.Status != shaper.Accepted || !result.Duplicate {
			t.Errorf("%s: %+v, %v; want it accepted as known", when, result, err)
		}
		if result, err := r.client.Offer(ctx, other); err != nil || result.Reason != shaper.RefusedConflict {
			t.Errorf("%s, another one: %+v, %v; want a conflict", when, result, err)
		}
	}
	r.offerOne(shaper.Spec{Tenant: "a", ID: "same"}, play{})
	again("while it waits")
	r.startBoth(2)
	r.drained()
	again("when it is done")
	r.offer("a", 3, play{})
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(20)), history.Accounts(h))
	if n := len(h.Of(history.Start)); n != 4 {
		t.Errorf("%d starts, want 4", n)
	}
}

// TestCancelledJobs: one that waits does not start, one that runs is ended, and those behind them
// go on.
func TestCancelledJobs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t)
	r.tenant("a", rate(20))
	runs := r.offerOne(shaper.Spec{Tenant: "a"}, play{For: time.Hour})
	waits := r.offerOne(shaper.Spec{Tenant: "a"}, play{})
	r.offer("a", 3, play{})
	if state, err := r.client.Cancel(ctx, "a", waits); err != nil || state != shaper.StateCancelled {
		t.Fatalf("cancel what waits: %s, %v", state, err)
	}
	r.ended("a", waits, shaper.StateCancelled, history.Cancelled)
	r.startBoth(2)
	r.starts(1)
	if state, err := r.client.Cancel(ctx, "a", runs); err != nil || state != shaper.StateRunning {
		t.Fatalf("cancel what runs: %s, %v", state, err)
	}
	r.ended("a", runs, shaper.StateCancelled, history.Cancelled)
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(20)), history.Accounts(h))
	if n := len(h.Of(history.Start)); n != 4 {
		t.Errorf("%d starts, want 4", n)
	}
}

// TestExpiredJobs: a job that has waited too long does not start, and uses no slot.
func TestExpiredJobs(t *testing.T) {
	t.Parallel()
	const most = 100 * time.Millisecond
	r := newRig(t)
	r.tenant("a", rate(20))
	r.offer("a", 1, play{})
	late := r.offerOne(shaper.Spec{Tenant: "a", MaxWait: most}, play{})
	r.offer("a", 2, play{})
	time.Sleep(most) // it has waited for that long
	r.startBoth(2)
	r.ended("a", late, shaper.StateExpired, history.Expired)
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(20)), history.Accounts(h))
	if n := len(h.Of(history.Start)); n != 3 {
		t.Errorf("%d starts, want 3", n)
	}
}
