package shaper

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// TenantInfo is the state of a tenant at an instant.
type TenantInfo struct {
	Name        string
	Known       bool   // it has a policy of its own
	Set         Policy // what was set for it; fields that are not set are inherited
	Effective   Policy // what applies
	Waiting     int
	Delayed     int // not due yet, or waiting out a backoff
	Out         int // tickets out
	Running     int
	Dead        int
	Oldest      time.Duration // how long the head of its bucket has waited
	NextSlot    time.Time     // when a job starts that leaves its bucket next, by Redis' clock; zero where it cannot be said
	Note        string        // why it cannot: one of the Note constants
	Paused      bool
	PausedUntil time.Time // zero if paused without an end
	InARow      int       // starts of the tenant that were throttled in a row, whatever the job; see ThrottledFor
	Counters    Counters
}

// ThrottledFor is how many starts of a tenant must be throttled in a row for it to be said: its downstream lets nothing through.
const ThrottledFor = 10

// Throttled reports whether a tenant's downstream has let nothing through for its last ThrottledFor starts.
func (t TenantInfo) Throttled() bool { return t.InARow >= ThrottledFor }

// Level is how many jobs wait: what Depth bounds.
func (t TenantInfo) Level() int { return t.Waiting + t.Delayed }

// Counters count what happened to jobs. Those of a tenant count since it was first seen, or came back after it had been idle for more
// than a day; those of a downstream since it was first used, whatever became of its tenants. A start counts once it is known to have
// begun: within seconds, or when it ends.
type Counters struct {
	Accepted, Started, Done, Failed, Retried, Throttled, Dead, Expired, Cancelled, Dropped, Crashed int64
	LostTickets                                                                                     int64 // tickets that never came to the gate; their jobs went back
	Forgotten                                                                                       int64 // dead jobs that were too old or too many
}

func readCounters(h map[string]string) (c Counters) {
	for i, p := range c.fields() {
		*p = atoi(h[counterFields[i]])
	}
	return c
}

func (c *Counters) fields() []*int64 {
	return []*int64{&c.Accepted, &c.Started, &c.Done, &c.Failed, &c.Retried, &c.Throttled, &c.Dead, &c.Expired,
		&c.Cancelled, &c.Dropped, &c.Crashed, &c.LostTickets, &c.Forgotten}
}

var counterFields = []string{"accepted", "started", "done", "failed", "retried", "throttled", "dead", "expired",
	"cancelled", "dropped", "crashed", "lost_tickets", "forgotten"}

// Tenant returns the current state of one tenant.
func (a *Admin) Tenant(ctx context.Context, tenant string) (TenantInfo, error) {
	if err := ValidName("tenant", tenant); err != nil {
		return TenantInfo{}, err
	}
	l, err := a.infos(ctx, []string{tenant})
	if err != nil {
		return TenantInfo{}, err
	}
	if len(l) == 0 {
		return TenantInfo{}, &UnseenError{a.q.downstream, tenant}
	}
	return l[0], nil
}

// Tenants returns the current state of all tenants that are known, by name.
func (a *Admin) Tenants(ctx context.Context) ([]TenantInfo, error) {
	names, err := a.Names(ctx, false)
	if err != nil {
		return nil, err
	}
	return a.infos(ctx, names)
}

func (a *Admin) infos(ctx context.Context, names []string) ([]TenantInfo, error) {
	ds, err := a.Downstream(ctx)
	if err != nil {
		return nil, err
	}
	return a.read(ctx, names, ds.Defaults)
}

func (a *Admin) read(ctx context.Context, names []string, defaults Policy) ([]TenantInfo, error) {
	var out []TenantInfo
	for len(names) > 0 {
		n := min(len(names), batch)
		args := make([]any, n)
		for i, name := range names[:n] {
			args[i] = name
		}
		names = names[n:]
		v, err := a.q.run(ctx, statsScript, "read tenants", args...)
		if err != nil {
			return nil, err
		}
		r := replyOf(v)
		now := r.instant()
		for r.more() {
			out = append(out, tenantInfo(replyOf(r.next()), defaults, now))
		}
	}
	return out, nil
}

func tenantInfo(r *reply, defaults Policy, now time.Time) TenantInfo {
	t := TenantInfo{Name: r.str(), Waiting: int(r.int()), Delayed: int(r.int()), Dead: int(r.int())}
	if since := r.instant(); !since.IsZero() {
		t.Oldest = max(0, now.Sub(since))
	}
	t.NextSlot, t.Note = r.instant(), r.str()
	h := map[string]string{}
	for f := replyOf(r.next()); f.more(); {
		h[f.str()] = f.str()
	}
	t.Set = readPolicy(h)
	t.Effective = t.Set.or(defaults)
	t.Known = h["ver"] != ""
	t.Out, t.Running = int(atoi(h["out"])), int(atoi(h["run"]))
	if until := atoi(h["until"]); until > now.UnixMicro() {
		t.Paused = true
		if until < forever {
			t.PausedUntil = instant(until)
		}
	}
	t.InARow, t.Counters = int(atoi(h["row"])), readCounters(h)
	return t
}

// forever is FOREVER in lua/lib/tenant.lua.
const forever = 9_000_000_000_000_000

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
	Oldest      time.Duration
	Pools       int          // live pools of workers
	Places      int          // places of live pools
	Counters    Counters     // of all tenants there ever were
	ByTenant    []TenantInfo // those that were read
}

// Level is how many jobs wait.
func (s Stats) Level() int { return s.Waiting + s.Delayed }

// Stats returns the current state of the downstream. With all it reads every tenant that is known, otherwise only those that are
// busy. Only dead jobs of tenants that were not read are missing in what it sums up.
func (a *Admin) Stats(ctx context.Context, all bool) (Stats, error) {
	names, err := a.Names(ctx, !all)
	if err != nil {
		return Stats{}, err
	}
	return a.stats(ctx, names)
}

// StatsOfLatest is Stats of the tenants that are busy and of those others that were so last, up to most in all, but all that are busy.
// So what it costs does not grow with tenants that are idle.
func (a *Admin) StatsOfLatest(ctx context.Context, most int) (Stats, error) {
	names, err := a.Names(ctx, true)
	if err != nil {
		return Stats{}, err
	}
	if len(names) < most {
		if names, err = a.q.rdb.ZRevRange(ctx, a.q.tenantsKey(), 0, int64(most-1)).Result(); err != nil {
			return Stats{}, a.q.failed(ctx, "list tenants", err)
		}
	}
	return a.stats(ctx, names)
}

// stats reads some tenants after the downstream's totals, so that those are no more than what the tenants say.
func (a *Admin) stats(ctx context.Context, names []string) (Stats, error) {
	s := Stats{Downstream: a.q.downstream}
	ds, err := a.q.rdb.HGetAll(ctx, a.q.downstreamKey()).Result()
	if err != nil {
		return Stats{}, a.q.failed(ctx, "read downstream", err)
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
	_, err = a.q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		pools = p.HGetAll(ctx, a.q.poolsKey())
		known, out, run = p.ZCard(ctx, a.q.tenantsKey()), p.ZCard(ctx, a.q.outKey()), p.ZCard(ctx, a.q.runKey())
		now = p.Time(ctx)
		return nil
	})
	if err != nil {
		return Stats{}, a.q.failed(ctx, "read downstream", err)
	}
	s.Tenants, s.Out, s.Running = int(known.Val()), int(out.Val()), int(run.Val())
	if until := atoi(ds["until"]); until > now.Val().UnixMicro() {
		s.Paused = true
		if until < forever {
			s.PausedUntil = instant(until)
		}
	}
	for pool, line := range pools.Val() {
		places, deadline, ok := strings.Cut(line, " ")
		if ok && !strings.Contains(pool, ":") && atoi(deadline) >= now.Val().UnixMicro() {
			s.Pools++
			s.Places += int(atoi(places))
		}
	}
	return s, nil
}

// JobFilter narrows Jobs. The zero value is the first 100 jobs that have not ended.
type JobFilter struct {
	States []State // waiting, delayed, out, running, dead; none = all but dead
	Limit  int     // default 100
}

// Validate returns a *FieldError for the first state that no listed job is in.
func (f JobFilter) Validate() error {
	for _, s := range f.States {
		switch s {
		case StateWaiting, StateDelayed, StateOut, StateRunning, StateDead:
		default:
			return &FieldError{"state", string(s), "waiting, delayed, out, running or dead"}
		}
	}
	return nil
}

// Jobs lists a tenant's jobs that have not ended, or are dead: the running first, then those in the order in which they leave.
func (a *Admin) Jobs(ctx context.Context, tenant string, f JobFilter) ([]Job, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	if len(f.States) == 0 {
		f.States = []State{StateRunning, StateOut, StateWaiting, StateDelayed}
	}
	var out []Job
	for _, s := range f.States {
		if len(out) >= f.Limit {
			break
		}
		l, err := a.list(ctx, tenant, s, f.Limit-len(out))
		if err != nil {
			return nil, err
		}
		out = append(out, l...)
	}
	return out, nil
}

// list lists a tenant's jobs in one state.
func (a *Admin) list(ctx context.Context, tenant string, state State, limit int) ([]Job, error) {
	if err := firstErr(ValidName("tenant", tenant), JobFilter{States: []State{state}}.Validate()); err != nil {
		return nil, err
	}
	var ids []string
	var err error
	last := int64(limit - 1)
	switch state {
	case StateWaiting:
		ids, err = a.q.waitingIDs(ctx, tenant, limit)
	case StateDelayed:
		ids, err = a.q.rdb.ZRange(ctx, a.q.laterKey(tenant), 0, last).Result()
	case StateDead:
		ids, err = a.q.rdb.ZRevRange(ctx, a.q.deadKey(tenant), 0, last).Result()
	case StateOut:
		ids, err = a.inFlight(ctx, a.q.outKey(), tenant, limit)
	case StateRunning:
		ids, err = a.inFlight(ctx, a.q.runKey(), tenant, limit)
	}
	if err != nil {
		return nil, a.q.failed(ctx, "list jobs", err, tenant)
	}
	if len(ids) == 0 {
		_, err := a.Tenant(ctx, tenant) // was it ever seen?
		return nil, err
	}
	out := make([]Job, 0, len(ids))
	for _, id := range ids {
		j, err := a.q.find(ctx, tenant, id)
		if errors.Is(err, ErrNotFound) {
			continue // it ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, j)
	}
	return out, nil
}

// waitingIDs returns the first ids of a bucket: those that came back, then those that were never out.
func (q queue) waitingIDs(ctx context.Context, tenant string, limit int) ([]string, error) {
	back, err := q.rdb.ZRange(ctx, q.backKey(tenant), 0, int64(limit-1)).Result()
	if err != nil || len(back) >= limit {
		return back, err
	}
	ids, err := q.rdb.LRange(ctx, q.waitKey(tenant), 0, int64(limit-len(back)-1)).Result()
	return append(back, ids...), err
}

// inFlight returns the ids of a tenant in the books of tickets out or jobs running.
func (a *Admin) inFlight(ctx context.Context, book, tenant string, limit int) ([]string, error) {
	members, err := a.q.rdb.ZRange(ctx, book, 0, -1).Result()
	var ids []string
	for _, m := range members {
		if t, id, ok := strings.Cut(m, " "); ok && t == tenant && len(ids) < limit {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	return ids, err
}

// FindJob looks for a job in all tenants that are known. ErrNotFound if there is none.
func (a *Admin) FindJob(ctx context.Context, id string) (Job, error) {
	if err := ValidName("id", id); err != nil {
		return Job{}, err
	}
	names, err := a.Names(ctx, false)
	if err != nil {
		return Job{}, err
	}
	for _, name := range names {
		j, err := a.q.find(ctx, name, id)
		if !errors.Is(err, ErrNotFound) {
			return j, err
		}
	}
	return Job{}, fmt.Errorf("job %s: %w", id, ErrNotFound)
}
