package e2e

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// quickly is a backoff that hardly delays a test.
var quickly = shaper.Backoff{Min: 50 * time.Millisecond, Max: 100 * time.Millisecond}

// TestRetriesAreSpaced has 25 jobs fail once: their second starts own slots like the first.
func TestRetriesAreSpaced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := rate(20)
	p.Backoff = quickly
	r.tenant("a", p)
	r.daemon(both)
	r.offer("a", 25, play{Fail: 1})
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(20)), history.Accounts(h))
	r.charged(h, "a", 2)
	if n := len(h.Of(history.Start)); n != 50 {
		t.Errorf("%d starts, want 50", n)
	}
}

// TestDeadJobsComeBackSpaced: one attempt means one start; the dead keep their error; requeued,
// they are spaced like the rest.
func TestDeadJobsComeBackSpaced(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t)
	p := rate(20)
	p.MaxAttempts = 1
	r.tenant("a", p)
	r.daemon(both)
	const jobs = 10
	r.offer("a", jobs, play{Fail: 1})
	var dead []shaper.Job
	r.eventually("all are dead", func() (all bool) {
		var err error
		dead, err = r.admin.Dead(ctx, "a", 100)
		r.must(err)
		return len(dead) == jobs
	})
	if n := len(r.history().Of(history.Start)); n != jobs {
		t.Fatalf("%d starts, want %d", n, jobs)
	}
	for _, job := range dead {
		if job.Reason != shaper.ReasonFailed || job.Error != "start 1 was to fail" {
			t.Errorf("job %s is dead with reason %q and error %q", job.ID, job.Reason, job.Error)
		}
	}
	r.offer("a", jobs, play{})
	n, full, err := r.admin.RequeueDead(ctx, "a")
	r.must(err)
	if n != jobs || full {
		t.Errorf("%d requeued, full %v; want %d", n, full, jobs)
	}
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(20)), history.Accounts(h))
	if n := len(h.Of(history.Start)); n != 3*jobs {
		t.Errorf("%d starts, want %d", n, 3*jobs)
	}
}

// TestThrottledWaits: when a job is throttled for a second its tenant waits that long, the order
// stays, and no attempt is charged. A handler says so with a ThrottledError, a downstream with 429
// and Retry-After.
func TestThrottledWaits(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"error", "429"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.tenant("a", rate(20))
			r.downstream(shaper.DownstreamPolicy{Tolerance: 10 * time.Second}) // whoever misses a slot is overtaken
			sink, first, role := r.sink(), play{}, both
			if by == "429" {
				role.Target, sink.refuse = sink.url, 1
			} else {
				first.Throttle = time.Second
			}
			r.daemon(role)
			ids := []string{r.offerOne(shaper.Spec{Tenant: "a"}, first)}
			r.await("it is throttled", func(h history.History) bool { return len(h.Of(history.End)) > 0 })
			r.eventually("its tenant waits", func() bool {
				job, err := r.client.Find(context.Background(), "a", ids[0])
				r.must(err)
				return job.State != shaper.StateRunning
			})
			for range 4 {
				ids = append(ids, r.offerOne(shaper.Spec{Tenant: "a"}, play{}))
			}
			h := r.drained()
			rule := perSecond(20)
			rule.Tolerance = 10 * time.Second
			r.refuse(history.Starts(h, rule), history.Accounts(h))
			r.charged(h, "a", 1)

			// In the order of their slots: two that are made up for after a stall start at the same time.
			starts, throttled := h.Of(history.Start), h.Of(history.End)[0]
			slices.SortStableFunc(starts, func(a, b history.Event) int { return cmp.Compare(a.Slot, b.Slot) })
			var got []string
			for _, e := range starts {
				got = append(got, e.ID)
			}
			if want := append(ids[:1:1], ids...); !slices.Equal(got, want) {
				t.Fatalf("started %q, want %q", got, want)
			}
			if d := time.Duration(starts[1].At - throttled.At); d < time.Second {
				t.Errorf("came back after %v, want a second or more", d)
			}
		})
	}
}
