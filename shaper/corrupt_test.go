package shaper

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// apart checks that a job is set apart, since its state could not be read.
func (w *world) apart(tenant, id, line string) {
	w.t.Helper()
	if j := w.job(tenant, id); j.State != StateDead || j.Reason != ReasonUnreadable || !strings.Contains(j.Error, line) || len(j.Type) == 0 {
		w.t.Errorf("%s is %+v, want dead, %s, with %q", id, j, ReasonUnreadable, line)
	}
}

// A value that no script of ours wrote harms its own job at most: the others go on, and the job is
// not lost. Nobody can say whether a job whose state cannot be read has run, so it does not start by
// itself.
func TestCorruptValues(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	for _, bad := range []string{"", "garbage", "r x", "\n\n", "{}", "1 -1 3 4 5 6\n", "\xff\x00"} {
		for _, where := range []string{"waiting", "out", "running"} {
			for _, part := range []string{"body", "state"} {
				t.Run(fmt.Sprintf("%s of a job that is %s is %q", part, where, bad), func(t *testing.T) {
					w := newWorld(t, rdb)
					w.set("a", Policy{Rate: rate(100, time.Second)})
					w.pool("p", 4)
					w.offers("a", 3)
					if where != "waiting" {
						if tickets, _, _ := w.release(1); where == "running" {
							w.enter(tickets[0], "p")
						}
					}
					key := w.q.JobsKey("a")
					if part == "state" {
						key = w.q.StateKey("a")
					}
					w.must(rdb.HSet(t.Context(), key, "a1", bad).Err())
					started := map[string]int{}
					for w.now < t0+30*second {
						w.pass(second)
						tickets, _, _ := w.release(5)
						for _, k := range tickets {
							g, _, err := w.gate.Enter(t.Context(), k, queue.NewToken("p"))
							if g == nil {
								continue
							}
							if (err != nil) != (part == "body" && g.ID == "a1") {
								t.Errorf("gate of %s, %s: %v", k.ID, g.ID, err)
							}
							w.finish(g, queue.Finish{Ending: queue.EndDead}) // with a body that cannot be read, its worker says that no attempt can succeed
							started[g.ID]++
						}
					}
					if part == "state" {
						if len(started) != 2 || started["a1"] > 0 {
							t.Errorf("started %v, want the others", started)
						}
						w.apart("a", "a1", bad)
						if n, _, err := w.admin.RequeueDead(t.Context(), "a", "a1"); err != nil || n != 1 {
							t.Errorf("requeue: %d, %v", n, err)
						}
						g := w.start()
						w.finish(g, queue.Finish{Ending: queue.EndOK})
						started[g.ID]++
					}
					if len(started) != 3 {
						t.Errorf("started %v, want all three", started)
					}
					if _, err := w.admin.Books(t.Context(), true); err != nil { // whose place a job had that was set apart nobody knows
						t.Error(err)
					}
					if faults, err := w.admin.Books(t.Context(), false); err != nil || part == "state" && len(faults) > 0 {
						t.Errorf("books: %v (%v)", faults, err)
					}
					if a, err := w.admin.Tenant(t.Context(), "a"); err != nil || a.Out+a.Running > 0 {
						t.Errorf("%d out, %d running for ever (%v)", a.Out, a.Running, err)
					}
				})
			}
		}
	}
}
