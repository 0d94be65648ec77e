package shaper

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// A value that no script of ours wrote harms its own job at most: the others go on, and the job is
// not lost.
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
					if len(started) != 3 {
						t.Errorf("started %v, want all three", started)
					}
					if a, err := w.admin.Tenant(t.Context(), "a"); err != nil || a.Out+a.Running > 0 {
						t.Errorf("%d out, %d running for ever (%v)", a.Out, a.Running, err)
					}
				})
			}
		}
	}
}
