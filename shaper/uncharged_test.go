package shaper

import (
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// A failure that is not charged waits out its backoff and comes back with all its attempts left;
// max_throttles bounds how often. Its worker is given the next job, and its tenant is not paused.
func TestFailuresThatAreNotCharged(t *testing.T) {
	const most = 3
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(10, time.Second), MaxAttempts: 2, MaxThrottles: most})
	w.pool("p", 1)
	w.offers("a", 1)
	f := queue.Finish{Ending: queue.EndUncharged, Delay: time.Second, Text: "not yet", Began: queue.BeganAfter(0)}
	for n := 1; n <= most; n++ {
		g := w.start()
		if g.Attempt != n || g.Charged != 1 || g.MaxAttempts != 2 {
			t.Fatalf("start %d: attempt %d, %d of %d charged; want %d, 1 of 2", n, g.Attempt, g.Charged, g.MaxAttempts, n)
		}
		want := "retry"
		if n == most {
			want = "dead"
		}
		for range 2 { // a repeated report changes nothing
			if became, _ := w.finish(g, f); became != want {
				t.Fatalf("start %d: %s, want %s", n, became, want)
			}
		}
		if want == "retry" {
			if tickets, wait, _ := w.release(1); len(tickets) > 0 || wait < 900*time.Millisecond || wait > time.Second {
				t.Fatalf("%d tickets before its backoff is over, the next in %v; want none, in less than 1s", len(tickets), wait)
			}
		}
	}
	if j := w.job("a", "a1"); j.State != StateDead || j.Reason != ReasonFailed || j.Error != "not yet" || j.Charged != 0 {
		t.Errorf("%+v, want it dead, failed", j)
	}
	a, err := w.admin.Tenant(t.Context(), "a")
	w.must(err)
	if c := a.Counters; c.Failed != 0 || c.Throttled != 0 || c.Retried != most-1 || c.Dead != 1 {
		t.Errorf("counted %+v, want %d retried, 1 dead, none failed", c, most-1)
	}

	w.offers2("b", 2)
	first := w.start()
	w.pass(200 * milli)
	if _, next := w.finish(first, queue.Finish{Ending: queue.EndUncharged, Delay: time.Second, Next: queue.NewToken("p"), Began: queue.BeganAfter(0)}); next == nil {
		t.Error("its worker is given no other job, although one waits")
	}
}

// A grant tells how many attempts its job has: the job's own maximum, or else its tenant's present
// one.
func TestGrantsTellTheMaximum(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(100, time.Second), MaxAttempts: 7})
	w.pool("p", 2)
	w.offer(Spec{Tenant: "a", ID: "own", Type: "x", MaxAttempts: 3})
	w.offer(Spec{Tenant: "a", ID: "policy", Type: "x"})
	own := w.start()
	w.set("a", Policy{MaxAttempts: 9})
	if policy := w.start(); own.MaxAttempts != 3 || policy.MaxAttempts != 9 {
		t.Errorf("got %d and %d, want the job's 3 and the tenant's 9", own.MaxAttempts, policy.MaxAttempts)
	}
}
