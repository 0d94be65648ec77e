package shaper

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// ledger is a hook that notes, for each script, how many calls there were, the most commands that
// one of them made, and the most CPU time that Redis spent on one. It needs a Redis of its own.
type ledger struct {
	t     testing.TB
	rdb   *redis.Client
	calls map[string]int
	most  map[string]int
	spent map[string]time.Duration
}

// cpu is how long the main thread of Redis has run.
func (l *ledger) cpu(ctx context.Context) (sum time.Duration) {
	info, err := l.rdb.Info(ctx, "cpu").Result()
	if err != nil {
		l.t.Error(err)
	}
	for _, m := range cpuLine.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}

// judge logs what was noted, and fails the test if a call was over the budget.
func (l *ledger) judge() {
	l.t.Helper()
	for name, n := range l.most {
		l.t.Logf("%-8s %5d calls, at most %5d commands and %v", name, l.calls[name], n, l.spent[name])
		if n > queue.Budget {
			l.t.Errorf("a call of %s made %d commands, want at most %d", name, n, queue.Budget)
		}
	}
}

// watch begins to count the commands that the scripts of a world make.
func watch(w *world) *ledger {
	l := &ledger{w.t, w.rdb.(*redis.Client), map[string]int{}, map[string]int{}, map[string]time.Duration{}}
	counted := redis.NewClient(l.rdb.Options())
	w.t.Cleanup(func() { counted.Close() })
	for _, s := range queue.Scripts {
		w.must(s.Load(w.t.Context(), counted).Err())
	}
	counted.AddHook(l)
	w.q.RDB = counted
	w.client, w.admin, w.gate = newClient(w.q, ClientConfig{}), &Admin{w.q}, queue.NewGate(w.q)
	return l
}

func (l *ledger) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *ledger) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		one := l.ProcessHook(func(ctx context.Context, cmd redis.Cmder) error { return next(ctx, []redis.Cmder{cmd}) })
		for _, cmd := range cmds {
			_ = one(ctx, cmd) // each command has its own error
		}
		return nil
	}
}

var (
	statLine = regexp.MustCompile(`cmdstat_([a-z]+)(?:\|[a-z]+)?:calls=(\d+)`)
	cpuLine  = regexp.MustCompile(`used_cpu_(?:sys|user)_main_thread:([0-9.]+)`)
)

func (l *ledger) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		begun := l.cpu(ctx)
		if err := l.rdb.ConfigResetStat(ctx).Err(); err != nil {
			return err
		}
		failed := next(ctx, cmd)
		info, err := l.rdb.Info(ctx, "commandstats").Result()
		if err != nil {
			return err
		}
		spent, n := l.cpu(ctx)-begun, 0
		for _, m := range statLine.FindAllStringSubmatch(info, -1) {
			if calls, _ := strconv.Atoi(m[2]); m[1] != "config" && m[1] != "evalsha" {
				n += calls
			}
		}
		for name, s := range queue.Scripts {
			if s.Hash() == cmd.Args()[1] {
				l.calls[name]++
				l.most[name] = max(l.most[name], n)
				l.spent[name] = max(l.spent[name], spent)
			}
		}
		return failed
	}
}

// many names tenants t00, t01 …
func many(n int) []string {
	l := make([]string, n)
	for i := range l {
		l[i] = fmt.Sprintf("t%04d", i)
	}
	return l
}

// fill offers each tenant so many jobs like s: T.1, T.2 …
func (w *world) fill(tenants []string, each int, s Spec) {
	w.t.Helper()
	var specs []Spec
	s.Type = "test"
	for _, s.Tenant = range tenants {
		for i := range each {
			s.ID = fmt.Sprintf("%s.%d", s.Tenant, i+1)
			specs = append(specs, s)
		}
	}
	for part := range slices.Chunk(specs, offerBatch) {
		for _, o := range w.client.OfferMany(w.t.Context(), part) {
			w.must(o.Err)
			if o.Result.Status != Accepted {
				w.t.Fatalf("%+v", o)
			}
		}
		w.pass(offerBatch) // no two jobs are accepted at the same instant
	}
}

// backOff gives each tenant so many jobs that failed once, and are tried again at `due`.
func (w *world) backOff(tenants []string, each int, due int64) {
	w.t.Helper()
	w.fill(tenants, each, Spec{Delay: time.Duration(due-w.now) * time.Microsecond})
	_, err := w.rdb.Pipelined(w.t.Context(), func(pipe redis.Pipeliner) error {
		for _, tenant := range tenants {
			lines := make([]any, 0, 2*each)
			for i := range each {
				lines = append(lines, fmt.Sprintf("%s.%d", tenant, i+1), fmt.Sprintf("z 1 1 0 0 - %d %d - - boom", w.now, w.now+int64(i)))
			}
			pipe.HSet(w.t.Context(), w.q.StateKey(tenant), lines...)
		}
		return nil
	})
	w.must(err)
}

// oldDead gives each tenant so many dead jobs that are too old to be kept.
func (w *world) oldDead(tenants []string, each int) {
	for _, tenant := range tenants {
		var dead []redis.Z
		for i := range each {
			dead = append(dead, redis.Z{Score: 1, Member: fmt.Sprint("old", i)})
		}
		w.must(w.rdb.ZAdd(w.t.Context(), w.q.DeadKey(tenant), dead...).Err())
	}
}

// releases calls release until there is nothing more to do at once, with credit for all of it; limit is
// of tickets a call.
func (w *world) releases(limit int) (tickets []queue.Ticket) {
	w.t.Helper()
	w.credit()
	for range 10_000 {
		l, _, more := w.release(limit)
		if tickets = append(tickets, l...); !more {
			return tickets
		}
	}
	w.t.Fatal("release always has more to do")
	return nil
}

// Whatever there is to do, no call of a script makes more commands than its budget: what Redis
// executed is counted, in the worst states that we know. How long that took is only logged.
func TestScriptsKeepTheirBudget(t *testing.T) {
	testenv.Long(t, "drives each script into its worst state")
	rdb := redistest.Start(t).Client()
	fast := DownstreamPolicy{Defaults: Policy{Rate: rate(1_000_000, time.Second), Depth: 1_000_000, MaxInFlight: 1_000_000}, DepartureLog: 100_000}
	started := func(w *world, tenants []string, each int) (l []*queue.Grant) {
		w.fill(tenants, each, Spec{})
		w.pass(second)
		for _, k := range w.releases(queue.Batch) {
			if g, _ := w.enter(k, "p"); g != nil {
				l = append(l, g)
			}
		}
		return l
	}
	ends := func(w *world, l []*queue.Grant, ending queue.Ending) {
		for n := 0; n < len(l); {
			var args []any
			for _, g := range l[n:min(len(l), n+queue.Batch)] {
				args = append(args, g.Tenant, g.ID, g.Token, string(ending), "0", "text", queue.NewToken("p"), "0")
			}
			v, err := w.q.Run(w.t.Context(), queue.FinishScript, "finish", args...)
			w.must(err)
			n += len(v.([]any))
		}
	}
	names := func(l []string) []any {
		out := make([]any, len(l))
		for i := range l {
			out[i] = l[i]
		}
		return out
	}
	for _, tc := range []struct {
		name   string
		before func(w *world)
		call   func(w *world)
	}{
		{"tickets", func(w *world) { w.fill(many(100), 2, Spec{}); w.pass(second) }, func(w *world) { w.releases(queue.Batch) }},
		{"backoffs end", func(w *world) { w.backOff(many(50), 200, w.now+second); w.pass(2 * second) },
			func(w *world) { w.releases(queue.Batch) }},
		{"jobs expire", func(w *world) { w.fill(many(50), 200, Spec{MaxWait: time.Second}); w.pass(2 * second) },
			func(w *world) { w.releases(queue.Batch) }},
		{"jobs that are out expire", func(w *world) {
			w.fill([]string{"y"}, 1, Spec{})
			w.releases(1)
			w.fill(many(50), 40, Spec{MaxWait: time.Second})
			for range 20 {
				w.release(queue.Batch)
			}
			w.pass(2 * second)
		}, func(w *world) {
			g, _ := w.enter(queue.Ticket{Tenant: "y", ID: "y.1", Release: 1}, "p")
			ends(w, []*queue.Grant{g}, queue.EndOK)
		}},
		{"tickets are lost", func(w *world) {
			w.fill(many(50), 10, Spec{})
			w.pass(second)
			w.releases(queue.Batch)
			w.pass(6 * second)
		},
			func(w *world) { w.releases(queue.Batch) }},
		{"leases end", func(w *world) {
			w.setDownstream(DownstreamPolicy{MaxCrashes: 1})
			w.oldDead(many(50), 200)
			started(w, many(50), 6)
			w.pass(4 * second)
			w.release(0)
			w.pass(3600 * second)
			w.pool("p", 1_000_000)
			w.release(0)
			w.pass(5 * second)
		}, func(w *world) { w.releases(queue.Batch) }},
		{"a policy changes", func(w *world) {
			w.backOff(many(500), 2, w.now+second)
			w.setDownstream(DownstreamPolicy{MaxCrashes: 7})
		},
			func(w *world) { w.releases(queue.Batch) }},
		{"the clock steps back", func(w *world) {
			w.fill(many(1000)[50:], 1, Spec{Delay: time.Hour})
			w.backOff(many(50), 200, w.now+20*second)
			started(w, []string{"y"}, 200)
			w.release(0)
			w.pass(-3600 * second)
		}, func(w *world) { w.releases(queue.Batch) }},
		{"idle tenants are forgotten", func(w *world) {
			w.fill(many(200), 1, Spec{})
			for _, tenant := range many(200) {
				_, err := w.admin.Purge(w.t.Context(), tenant)
				w.must(err)
				w.must(w.rdb.Del(w.t.Context(), w.q.TenantKey(tenant)).Err())
			}
			w.pass(48 * 3600 * second)
		}, func(w *world) {
			_, err := w.q.Release(w.t.Context(), 0, ticketTTL, true, 0)
			w.must(err)
		}},
		{"ends, and the next", nil, func(w *world) {
			l := started(w, many(50), 4)
			w.fill(many(100)[50:], 4, Spec{})
			w.pass(second)
			ends(w, l, queue.EndOK)
		}},
		{"failures, to be tried again", nil, func(w *world) {
			ends(w, started(w, many(50), 4), queue.EndError)
		}},
		{"deaths", func(w *world) { w.oldDead(many(50), 200) }, func(w *world) { ends(w, started(w, many(50), 4), queue.EndDead) }},
		{"ends after a step", func(w *world) { w.backOff(many(50), 200, w.now+20*second) }, func(w *world) {
			var l []*queue.Grant
			for _, tenant := range many(50) {
				w.offer(Spec{Tenant: tenant})
			}
			for _, k := range w.releases(queue.Batch) {
				g, _ := w.enter(k, "p")
				l = append(l, g)
			}
			w.release(0)
			w.pass(-3600 * second)
			ends(w, l, queue.EndOK)
		}},
		{"offers to an idle tenant", nil, func(w *world) { w.fill([]string{"a"}, 1000, Spec{}) }},
		{"offers with a wait of their own", nil, func(w *world) { w.fill([]string{"a"}, 1000, Spec{MaxWait: time.Hour}) }},
		{"offers that are delayed", nil, func(w *world) {
			specs := make([]Spec, 2000)
			for i := range specs {
				specs[i] = Spec{Tenant: "a", Type: "test", Delay: time.Hour - time.Duration(i)*time.Second/2}
			}
			w.client.OfferMany(w.t.Context(), specs)
		}},
		{"offers that are known", func(w *world) { w.fill([]string{"a"}, 10_000, Spec{}) }, func(w *world) { w.fillAgain("a", 5000, 400) }},
		{"offers to tenants that share a rate", func(w *world) {
			w.setDownstream(DownstreamPolicy{Rate: rate(100, time.Second)})
			w.fill(many(12), 10, Spec{})
		}, func(w *world) { w.fill([]string{"a"}, 400, Spec{}) }},
		{"offers that rules judge", func(w *world) {
			w.setDownstream(DownstreamPolicy{Admit: rules(w.t.(*testing.T), "fixed_window 100000/d name=one", "sliding_counter 100000/d name=two", "token_bucket 100000/s name=three")})
		}, func(w *world) { w.fill([]string{"a"}, 400, Spec{}) }},
		{"offers that drop others", func(w *world) {
			w.backOff([]string{"a"}, 200, w.now+second)
			w.pass(2 * second)
			w.pool("p", 1)
			w.releases(1)
			w.offers2("a", 800)
			w.set("a", Policy{OnFull: DropOldest, Depth: 900, MaxWait: time.Hour})
		}, func(w *world) { w.fill([]string{"a"}, 400, Spec{}) }},
		{"a purge", func(w *world) { w.fill([]string{"a"}, 300, Spec{}) }, func(w *world) {
			_, err := w.admin.Purge(w.t.Context(), "a")
			w.must(err)
		}},
		{"dead jobs come back, and go", nil, func(w *world) {
			ends(w, started(w, []string{"a"}, 100), queue.EndDead)
			_, _, err := w.admin.RequeueDead(w.t.Context(), "a")
			w.must(err)
			w.pass(second)
			ends(w, started(w, []string{"a"}, 100), queue.EndDead)
			_, err = w.admin.RemoveDead(w.t.Context(), "a")
			w.must(err)
		}},
		{"tenants are shown", func(w *world) {
			w.setDownstream(DownstreamPolicy{Rate: rate(100, time.Second)})
			w.fill(many(100), 3, Spec{})
		}, func(w *world) {
			_, err := w.q.Run(w.t.Context(), queue.StatsScript, "stats", names(many(50))...)
			w.must(err)
		}},
		{"a configuration", nil, func(w *world) {
			p := map[string]Policy{}
			for _, tenant := range many(100) {
				p[tenant] = Policy{Rate: rate(1, time.Second), Depth: 7, Weight: 3}
			}
			_, err := w.admin.Apply(w.t.Context(), fast, p)
			w.must(err)
			_, err = w.admin.Apply(w.t.Context(), DownstreamPolicy{}, nil)
			w.must(err)
		}},
		{"books are compared, and mended", func(w *world) {
			w.backOff(many(50), 60, w.now+second)
			w.fill([]string{"a"}, 300, Spec{})
			started(w, many(100)[50:], 6)
			for _, key := range []string{w.q.LaterKey("t0001"), w.q.WaitKey("a"), w.q.RunKey(), w.q.OutKey(), w.q.DueKey()} {
				w.must(w.rdb.Del(w.t.Context(), key).Err())
			}
		}, func(w *world) {
			_, err := w.admin.Books(w.t.Context(), true)
			w.must(err)
		}},
		{"a beat", nil, func(w *world) {
			var own []queue.Held
			for _, g := range started(w, many(50), 2) {
				own = append(own, queue.Held{Grant: g, Begun: true})
			}
			_, err := w.gate.Beat(w.t.Context(), "p", 1_000_000, time.Hour, own)
			w.must(err)
		}},
		{"pools vanish", func(w *world) {
			for i := range 300 {
				_, err := w.gate.Beat(w.t.Context(), fmt.Sprint("q", i), 1, time.Second, nil)
				w.must(err)
			}
			w.pass(100 * second)
		}, func(w *world) { w.release(0) }},
		{"single calls", func(w *world) { w.backOff([]string{"a"}, 3000, w.now+20*second); w.fill([]string{"b"}, 3000, Spec{}) }, func(w *world) {
			w.release(0)
			w.pass(-3600 * second)
			w.must(w.admin.Pause(w.t.Context(), "a", time.Minute))
			_, err := w.client.Cancel(w.t.Context(), "b", "b.2000")
			w.must(err)
			w.job("b", "b.2500")
			_, err = w.admin.Purge(w.t.Context(), "a")
			w.must(err)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.setDownstream(fast)
			w.pool("p", 1_000_000)
			if tc.before != nil {
				tc.before(w)
			}
			l := watch(w)
			tc.call(w)
			l.judge()
		})
	}
}

// A batch that is offered again in its order costs little more than one that is new, wherever it is
// in a long bucket.
func TestKnownOffersShareACall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Start(t).Client())
	w.setDownstream(DownstreamPolicy{Defaults: Policy{Depth: 100_000}})
	w.fill([]string{"a"}, 10_000, Spec{})
	l := watch(w)
	for i, o := range w.fillAgain("a", 5000, 100) {
		if r := o.Result; !r.Duplicate || r.Position != 5000+i {
			t.Errorf("job %d: %+v", 5000+i, r)
		}
	}
	l.judge()
	if l.calls["enqueue"] != 1 {
		t.Errorf("%d calls, want one", l.calls["enqueue"])
	}
}

// fillAgain offers n jobs of a tenant that fill offered before.
func (w *world) fillAgain(tenant string, from, n int) []Offered {
	var specs []Spec
	for i := range n {
		specs = append(specs, Spec{Tenant: tenant, ID: fmt.Sprintf("%s.%d", tenant, from+i), Type: "test"})
	}
	out := w.client.OfferMany(w.t.Context(), specs)
	for _, o := range out {
		w.must(o.Err)
	}
	return out
}
