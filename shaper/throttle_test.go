package shaper

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// A job that its downstream always throttles is dead after max_throttles of its starts, whether its
// tenant or all tenants are paused for it, and what waited behind it leaves. A requeue gives it all
// of them again.
func TestJobsThatAreAlwaysThrottled(t *testing.T) {
	testenv.Long(t, "throttles each job a hundred times")
	t.Parallel()
	rdb := redistest.Open(t)
	for _, ending := range []queue.Ending{queue.EndThrottled, queue.EndThrottledAll} {
		for _, tc := range []struct {
			set  int // 0 = the default
			want int
		}{{3, 3}, {1, 1}, {0, 100}} {
			t.Run(fmt.Sprint(ending, tc.set), func(t *testing.T) {
				w := newWorld(t, rdb)
				w.set("a", Policy{Rate: rate(10, time.Second), MaxAttempts: 1, MaxThrottles: tc.set})
				w.pool("p", 1)
				w.offers("a", 2)
				f := queue.Finish{Ending: ending, Delay: time.Second, Text: "429", Began: queue.BeganAfter(0)}
				throttle := func() {
					t.Helper()
					for n := 1; n <= tc.want; n++ {
						g := w.start()
						if g.ID != "a1" || g.Charged != 1 {
							t.Fatalf("start %d is of %s, %d are charged; want a1, 1", n, g.ID, g.Charged)
						}
						want := "back"
						if n == tc.want {
							want = "dead"
						}
						for range 2 {
							if became, _ := w.finish(g, f); became != want {
								t.Fatalf("throttled start %d of %d: %s, want %s", n, tc.want, became, want)
							}
						}
						if j := w.job("a", "a1"); j.Throttles != n || j.Error != "429" {
							t.Fatalf("after %d: %+v", n, j)
						}
					}
				}
				throttle()
				if j := w.job("a", "a1"); j.State != StateDead || j.Reason != ReasonThrottled {
					t.Errorf("%+v, want it dead, throttled", j)
				}
				if n, _, err := w.admin.RequeueDead(t.Context(), "a", "a1"); n != 1 || err != nil {
					t.Fatalf("requeued %d, %v", n, err)
				}
				if j := w.job("a", "a1"); j.Throttles != 0 || j.Reason != "" {
					t.Errorf("requeued: %+v", j)
				}
				throttle()
				if g := w.runNext(); g.ID != "a2" {
					t.Errorf("then %s, want a2", g.ID)
				}
				a, err := w.admin.Tenant(t.Context(), "a")
				w.must(err)
				if c, n := a.Counters, int64(2*tc.want); c.Throttled != n || c.Started != n+1 || c.Dead != 2 || c.Failed != 0 {
					t.Errorf("counted %+v, want %d throttled", c, n)
				}
			})
		}
	}
}

// Throttled starts of a tenant count in a row, whichever of its jobs they are of. Only what its
// downstream answers ends the row.
func TestThrottledInARow(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(100, time.Second), MaxThrottles: 4})
	w.pool("p", 1)
	w.offers("a", 9)
	row := 0
	end := func(f queue.Finish, want int) {
		t.Helper()
		finished, err := w.gate.Finish(t.Context(), w.start(), f)
		w.must(err)
		a, err := w.admin.Tenant(t.Context(), "a")
		w.must(err)
		told := want
		if f.Ending != queue.EndThrottled {
			told = 0
		}
		if a.InARow != want || a.Throttled() != (want >= ThrottledFor) || finished.InARow != told {
			t.Errorf("%d in a row, throttled %v, told %d; want %d", a.InARow, a.Throttled(), finished.InARow, want)
		}
		row = want
	}
	throttled := queue.Finish{Ending: queue.EndThrottled, Delay: time.Millisecond, Began: queue.BeganAfter(0)}
	for range 11 {
		end(throttled, row+1)
	}
	end(queue.Finish{Ending: queue.EndBack, Began: queue.NeverBegan}, row)
	end(queue.Finish{Ending: queue.EndBack}, row)
	end(queue.Finish{Ending: queue.EndDead, Began: queue.NeverBegan}, row) // its body cannot be read
	end(throttled, row+1)
	end(queue.Finish{Ending: queue.EndOK}, 0)
	end(throttled, 1)
	end(queue.Finish{Ending: queue.EndError}, 0)
}

// A state line of the version before, which counted no throttles, can be read, and so can the error
// in it.
func TestStateOfTheVersionBefore(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(100, time.Second)})
	w.pool("p", 1)
	w.offers("a", 1)
	w.finish(w.start(), queue.Finish{Ending: queue.EndThrottled, Delay: time.Millisecond, Text: "x"})
	key := w.q.StateKey("a")
	w.must(w.rdb.HSet(t.Context(), key, "a1", fmt.Sprintf("w 1 7 7 0 - 1 %d - - ,throttles=5 ,granted", w.now)).Err())
	if j := w.job("a", "a1"); j.Throttles != 0 || j.Attempt != 7 || j.Error != ",throttles=5 ,granted" {
		t.Errorf("%+v", j)
	}
	w.finish(w.start(), queue.Finish{Ending: queue.EndThrottled, Delay: time.Millisecond, Text: "y"})
	if j := w.job("a", "a1"); j.Throttles != 1 || j.Attempt != 8 || j.Error != "y" {
		t.Errorf("%+v", j)
	}
}
