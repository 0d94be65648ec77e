package shaper

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // little of what the tests allocate lives long, least of all miniredis' Lua
	redistest.VerifyTestMain(m)
}

const (
	second = int64(1_000_000) // µs
	milli  = int64(1_000)

	t0    = 2_000_000_000_123_456 // where pretended clocks begin; miniredis prints 2000000000000000 as 2e+15, and cannot read it
	hold  = 60 * milli            // 2 × lead + tolerance, by default
	ahead = 340 * milli           // lead + longest lead + tolerance, by default
)

var worlds atomic.Int64

// world is one downstream on a clock that the test sets. Its tenants need not wait for the start of
// the server.
type world struct {
	t      testing.TB
	rdb    redis.UniversalClient
	now    int64
	q      queue.Queue
	client *Client
	admin  *Admin
	gate   *queue.Gate
	places map[string]int // of the pools that beat
}

func newWorld(t testing.TB, rdb redis.UniversalClient) *world {
	t.Helper()
	w := emptyWorld(t, rdb)
	w.must(rdb.HSet(t.Context(), w.q.DownstreamKey(), "rid", runID(t, w.q), "epoch", 1).Err())
	return w
}

// emptyWorld is a world of which Redis knows nothing yet.
func emptyWorld(t testing.TB, rdb redis.UniversalClient) *world {
	t.Helper()
	name := fmt.Sprintf("d%d", worlds.Add(1))
	w := &world{t: t, rdb: rdb, now: t0, places: map[string]int{}}
	q, err := newQueue(rdb, name)
	w.must(err)
	q.Clock = func() int64 { return w.now }
	w.q = q
	w.client = newClient(q, ClientConfig{})
	w.admin, w.gate = &Admin{q}, queue.NewGate(q)
	return w
}

// runID is what the scripts of a downstream see of the server's identity.
func runID(t testing.TB, q queue.Queue) string {
	server, err := primary(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	info, err := server.Info(t.Context(), "server").Result()
	if _, rest, ok := strings.Cut(info, "run_id:"); err == nil && ok {
		return rest[:40]
	}
	return "unknown"
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pass(us int64) { w.now += us }

// credit lets any number of tickets be out for now, as if the gate had taken as many lately.
func (w *world) credit() {
	w.t.Helper()
	w.must(w.rdb.HSet(w.t.Context(), w.q.Prefix+"d", "clock", w.now, "pace", 1_000_000_000).Err())
}

// set gives tenants of the world a policy.
func (w *world) set(tenant string, p Policy) {
	w.t.Helper()
	w.must(w.admin.SetTenant(w.t.Context(), tenant, p))
}

func (w *world) setDownstream(p DownstreamPolicy) {
	w.t.Helper()
	w.must(w.admin.SetDownstream(w.t.Context(), p))
}

// offer offers a job, and lets a µs pass so that no two jobs are accepted at the same instant.
func (w *world) offer(s Spec) Result {
	w.t.Helper()
	if s.Type == "" {
		s.Type = "test"
	}
	r, err := w.client.Offer(w.t.Context(), s)
	w.must(err)
	w.pass(1)
	return r
}

// offers offers jobs a1, a2 … to tenant a.
func (w *world) offers(tenant string, n int) {
	w.t.Helper()
	for i := range n {
		if r := w.offer(Spec{Tenant: tenant, ID: fmt.Sprint(tenant, i+1)}); r.Status != Accepted {
			w.t.Fatalf("job %d of %s: %+v", i+1, tenant, r)
		}
	}
}

// pool makes a pool of workers known, for an hour and as long as start is called.
func (w *world) pool(name string, places int) {
	w.t.Helper()
	w.places[name] = places
	_, err := w.gate.Beat(w.t.Context(), name, places, time.Hour, nil)
	w.must(err)
}

const ticketTTL = 5 * time.Second

// release asks for up to limit tickets.
func (w *world) release(limit int) (tickets []queue.Ticket, wait time.Duration, more bool) {
	w.t.Helper()
	r, err := w.q.Release(w.t.Context(), limit, ticketTTL, false, 0)
	w.must(err)
	return r.Tickets, r.Wait, r.More
}

// enter takes a ticket to the gate; answer is "" for a grant.
func (w *world) enter(t queue.Ticket, pool string) (*queue.Grant, string) {
	w.t.Helper()
	g, answer, err := w.gate.Enter(w.t.Context(), t, queue.NewToken(pool))
	w.must(err)
	return g, answer
}

func (w *world) finish(g *queue.Grant, f queue.Finish) (string, *queue.Grant) {
	w.t.Helper()
	end, err := w.gate.Finish(w.t.Context(), g, f)
	w.must(err)
	return end.Became, end.Next
}

// start waits, on the pretended clock, until some job of the downstream has a slot, and takes it.
// It fails the test when nothing starts within a minute.
func (w *world) start() *queue.Grant {
	w.t.Helper()
	return w.startWithin(60 * second)
}

func (w *world) startWithin(us int64) *queue.Grant {
	w.t.Helper()
	for begun := w.now; w.now < begun+us; {
		for name, places := range w.places {
			w.pool(name, places)
		}
		tickets, wait, more := w.release(1)
		for _, t := range tickets {
			if g, _ := w.enter(t, "p"); g != nil {
				return g
			}
		}
		switch {
		case more:
		case wait < 0: // until then no instant is known at which to look, and a scheduler looks once a second
			w.pass(hold / 3)
		default:
			w.pass(max(int64(wait/time.Microsecond), milli))
		}
	}
	w.t.Fatalf("nothing started within %v", time.Duration(us)*time.Microsecond)
	return nil
}

// run starts the next job and ends it well when its slot has come.
func (w *world) runNext() *queue.Grant {
	w.t.Helper()
	g := w.start()
	w.now = max(w.now, g.Slot.UnixMicro())
	if became, _ := w.finish(g, queue.Finish{Ending: queue.EndOK}); became != "done" {
		w.t.Fatalf("finish of %s: %s", g.ID, became)
	}
	return g
}

// ids of what waits in a tenant's bucket, head first.
func (w *world) waiting(tenant string) string {
	w.t.Helper()
	l, err := waitingIDs(w.t.Context(), w.q, tenant, 1_000_000)
	w.must(err)
	return strings.Join(l, " ")
}

func (w *world) job(tenant, id string) Job {
	w.t.Helper()
	j, err := w.client.Find(w.t.Context(), tenant, id)
	w.must(err)
	return j
}

// dump returns all that Redis holds of the world, by key, and whether the key has a time to live.
func (w *world) dump() string {
	w.t.Helper()
	ctx := w.t.Context()
	server, err := primary(ctx, w.q) // KEYS asks one server, in a cluster any of them
	w.must(err)
	keys, err := server.Keys(ctx, w.q.Prefix+"*").Result()
	w.must(err)
	slices.Sort(keys)
	types, ttls, values := make([]*redis.StatusCmd, len(keys)), make([]*redis.DurationCmd, len(keys)), make([]func() any, len(keys))
	_, err = w.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, k := range keys {
			types[i], ttls[i] = pipe.Type(ctx, k), pipe.PTTL(ctx, k)
		}
		return nil
	})
	w.must(err)
	_, err = w.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, k := range keys {
			switch types[i].Val() {
			case "hash":
				v := pipe.HGetAll(ctx, k)
				values[i] = func() any { return v.Val() } // printed sorted
			case "zset":
				v := pipe.ZRangeWithScores(ctx, k, 0, -1)
				values[i] = func() any { return v.Val() }
			case "stream":
				v := pipe.XRange(ctx, k, "-", "+")
				values[i] = func() any { return v.Val() }
			case "list":
				v := pipe.LRange(ctx, k, 0, -1)
				values[i] = func() any { return v.Val() }
			default:
				v := pipe.Get(ctx, k)
				values[i] = func() any { return v.Val() }
			}
		}
		return nil
	})
	w.must(err)
	var b strings.Builder
	for i, k := range keys {
		fmt.Fprintf(&b, "%s %q %v\n", k, values[i](), ttls[i].Val() > 0)
	}
	return b.String()
}

func rate(events int64, period time.Duration) buckets.Rate {
	return buckets.Rate{Events: events, Period: period}
}

// withTimeout bounds the wait for what should have happened long before.
func withTimeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	t.Cleanup(cancel)
	return ctx
}

// counter counts the commands of a client, and can lose the reply of one.
type counter struct {
	n    atomic.Int64
	lose atomic.Int64 // which command, from 1, to run twice, as go-redis does when a reply is lost
}

func counting(w *world) *atomic.Int64 {
	c := &counter{}
	w.rdb.AddHook(c)
	return &c.n
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.n.Add(1) == c.lose.Load() {
			_ = next(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if c.n.Add(1) == c.lose.Load() {
			_ = next(ctx, cmds)
		}
		return next(ctx, cmds)
	}
}
