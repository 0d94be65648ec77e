package shaper

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Counters count what happened to jobs. Those of a tenant count from when it was first seen, or
// came back after it had been idle for more than a day; those of a downstream from when it was
// first used, whatever became of its tenants. A start counts once it is known to have begun: within
// seconds, or when it ends.
type Counters struct {
	Accepted, Started, Done, Failed, Retried, Throttled, Dead, Expired, Cancelled, Dropped, Crashed int64
	Suspected                                                                                       int64 // of Crashed, those that count against nobody, since several jobs ran there
	LostTickets                                                                                     int64 // tickets that never came to the gate; their jobs went back
	Forgotten                                                                                       int64 // dead jobs that were too old or too many
	Evicted                                                                                         int64 // ended jobs whose ids were forgotten before their retention was over, since there were more than MaxEnds
}

func readCounters(h map[string]string) (c Counters) {
	for i, p := range c.fields() {
		*p = atoi(h[counterFields[i]])
	}
	return c
}

func (c *Counters) fields() []*int64 {
	return []*int64{&c.Accepted, &c.Started, &c.Done, &c.Failed, &c.Retried, &c.Throttled, &c.Dead, &c.Expired,
		&c.Cancelled, &c.Dropped, &c.Crashed, &c.Suspected, &c.LostTickets, &c.Forgotten, &c.Evicted}
}

var counterFields = []string{"accepted", "started", "done", "failed", "retried", "throttled", "dead", "expired",
	"cancelled", "dropped", "crashed", "suspected", "lost_tickets", "forgotten", "evicted"}

// Stats is the state of a downstream at an instant.
type Stats struct {
	Downstream  string
	Policy      DownstreamPolicy
	Paused      bool
	PausedUntil time.Time
	Tenants     int // known
	Busy        int // with jobs waiting or in flight
	Waiting     int
	Delayed     int
	Out         int
	Running     int
	Dead        int
	Oldest      time.Duration // the longest that a head of a bucket has waited
	Pools       int           // live pools of workers
	Places      int           // places of live pools
	Counters    Counters      // of all tenants there ever were
	ByTenant    []TenantInfo  // those that were read
}

// Level is how many jobs wait, delayed ones included.
func (s Stats) Level() int { return s.Waiting + s.Delayed }

// Stats returns the current state of the downstream. With all it reads every known tenant,
// otherwise only those that are busy. Its sums lack nothing but the dead jobs of tenants that were
// not read.
func (a *Admin) Stats(ctx context.Context, all bool) (Stats, error) {
	names, err := a.Names(ctx, !all)
	if err != nil {
		return Stats{}, err
	}
	return a.stats(ctx, names)
}

// StatsOfLatest is Stats of all tenants that are busy and, up to most in all, of those that were
// busy most recently. So its cost does not grow with idle tenants.
func (a *Admin) StatsOfLatest(ctx context.Context, most int) (Stats, error) {
	names, err := a.Names(ctx, true)
	if err != nil {
		return Stats{}, err
	}
	if len(names) < most {
		if names, err = a.q.RDB.ZRevRange(ctx, a.q.TenantsKey(), 0, int64(most-1)).Result(); err != nil {
			return Stats{}, a.q.Failed(ctx, "list tenants", err)
		}
		names = proper(names)
	}
	return a.stats(ctx, names)
}

// stats reads some tenants after the downstream's totals, so that the totals do not exceed what the
// tenants say.
func (a *Admin) stats(ctx context.Context, names []string) (Stats, error) {
	s := Stats{Downstream: a.q.Downstream}
	ds, err := a.q.RDB.HGetAll(ctx, a.q.DownstreamKey()).Result()
	if err != nil {
		return Stats{}, a.q.Failed(ctx, "read downstream", err)
	}
	s.Policy, s.Counters = readDownstream(ds).WithDefaults(), readCounters(ds)
	if s.ByTenant, err = a.read(ctx, names, s.Policy.Defaults); err != nil {
		return Stats{}, err
	}
	for _, t := range s.ByTenant {
		s.Waiting += t.Waiting
		s.Delayed += t.Delayed
		s.Dead += t.Dead
		s.Oldest = max(s.Oldest, t.Oldest)
		if t.Level()+t.Out+t.Running > 0 {
			s.Busy++
		}
	}
	var pools *redis.MapStringStringCmd
	var known, out, run *redis.IntCmd
	var now *redis.TimeCmd
	_, err = a.q.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		pools = p.HGetAll(ctx, a.q.PoolsKey())
		known, out, run = p.ZCard(ctx, a.q.TenantsKey()), p.ZCard(ctx, a.q.OutKey()), p.ZCard(ctx, a.q.RunKey())
		now = p.Time(ctx)
		return nil
	})
	if err != nil {
		return Stats{}, a.q.Failed(ctx, "read downstream", err)
	}
	s.Tenants, s.Out, s.Running = int(known.Val()), int(out.Val()), int(run.Val())
	s.Paused, s.PausedUntil = paused(ds, now.Val())
	for pool, line := range pools.Val() {
		f := strings.Fields(line) // places and deadline; newer versions may add more
		if len(f) > 1 && !strings.Contains(pool, ":") && atoi(f[1]) >= now.Val().UnixMicro() {
			s.Pools++
			s.Places += int(atoi(f[0]))
		}
	}
	return s, nil
}
