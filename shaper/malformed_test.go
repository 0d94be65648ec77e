package shaper

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// malformed is what no version enters in a key that names tenants or jobs.
var malformed = []string{"", " ", "x", "a b c", "a  b", "\xff\xfe", "no{such}tenant 1", ":", "a:", "a:x", ":0", "a:-1", "a 1\n"}

// What is malformed in a key of the whole downstream stops nobody, wherever it sorts: all jobs run,
// and schedulers, stats and the comparison of the books go on.
func TestMalformedMembersStopNobody(t *testing.T) {
	testenv.Long(t, "garbles every key")
	t.Parallel()
	rdb := redistest.Open(t)
	for key, of := range map[string]func(queue.Queue) string{
		"out": queue.Queue.OutKey, "run": queue.Queue.RunKey, "apart": queue.Queue.ApartKey, "due": queue.Queue.DueKey, "ready": queue.Queue.ReadyKey,
		"tenants": queue.Queue.TenantsKey, "ends": queue.Queue.EndsKey, "pools": queue.Queue.PoolsKey, "gave": queue.Queue.GaveKey,
		"named": queue.Queue.NamedKey, "configs": queue.Queue.ConfigsKey,
		"back": func(q queue.Queue) string { return q.BackKey("a") }, "later": func(q queue.Queue) string { return q.LaterKey("a") },
		"outs": func(q queue.Queue) string { return q.OutsKey("a") }, "dead": func(q queue.Queue) string { return q.DeadKey("a") },
	} {
		for _, score := range []float64{-1, 0, float64(t0), 9e15} {
			if score != 0 && (key == "pools" || key == "gave") {
				continue // are hashes
			}
			t.Run(fmt.Sprintf("%s at %g", key, score), func(t *testing.T) {
				w := newWorld(t, rdb)
				ctx := t.Context()
				w.set("a", Policy{Rate: rate(100, time.Second)})
				w.set("b", Policy{Rate: rate(100, time.Second)})
				w.pool("p", 3)
				w.offers("a", 2)
				w.offers("b", 2)
				for _, member := range malformed {
					if key == "pools" || key == "gave" {
						w.must(rdb.HSet(ctx, of(w.q), member, member).Err())
					} else {
						w.must(rdb.ZAdd(ctx, of(w.q), redis.Z{Score: score, Member: member}).Err())
					}
				}
				w.offer(Spec{Tenant: "b", ID: "b3"})
				started := w.runs(30 * second)
				slices.Sort(started)
				if want := []string{"a1", "a2", "b1", "b2", "b3"}; !slices.Equal(started, want) {
					t.Errorf("started %v, want %v", started, want)
				}
				for _, read := range []func() (Stats, error){
					func() (Stats, error) { return w.admin.Stats(ctx, true) },
					func() (Stats, error) { return w.admin.StatsOfLatest(ctx, 100) },
				} {
					s, err := read()
					for _, tenant := range s.ByTenant {
						if ValidName("tenant", tenant.Name) != nil {
							t.Errorf("stats name a tenant %q", tenant.Name)
						}
					}
					if err != nil || len(s.ByTenant) < 2 {
						t.Errorf("stats of %d tenants: %v", len(s.ByTenant), err)
					}
				}
				if _, err := w.admin.Books(ctx, true); err != nil {
					t.Errorf("books: %v", err)
				}
				if faults, err := w.admin.Books(ctx, true); err != nil || len(faults) > 0 {
					t.Errorf("mended, and still wrong: %v, %v", faults, err)
				}
				if _, err := w.admin.Apply(ctx, DownstreamPolicy{}, map[string]Policy{"a": {Depth: 7}}); err != nil {
					t.Errorf("a configuration: %v", err)
				}
				if _, err := w.q.Release(ctx, 10, ticketTTL, true, 0); err != nil {
					t.Errorf("tidying: %v", err)
				}
			})
		}
	}
}
