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

// TenantInfo is what stands of a tenant at an instant.
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
	NextSlot    time.Time     // the earliest slot that a start could get, by Redis' clock
	Paused      bool
	PausedUntil time.Time // zero if paused without an end
	Counters    Counters
}

// Level is how many jobs wait: what Depth bounds.
func (t TenantInfo) Level() int { return t.Waiting + t.Delayed }

// Counters count since a tenant was first seen, or came back after it had been idle for more than a day.
type Counters struct {
	Accepted, Started, Done, Failed, Retried, Throttled, Dead, Expired, Cancelled, Dropped, Crashed int64
	LostTickets                                                                                     int64 // tickets that never came to the gate; their jobs went back
	Forgotten                                                                                       int64 // dead jobs that were too old or too many
}

func (c *Counters) add(d Counters) {
	for i, p := range c.fields() {
		*p += *d.fields()[i]
	}
}

func (c *Counters) fields() []*int64 {
	return []*int64{&c.Accepted, &c.Started, &c.Done, &c.Failed, &c.Retried, &c.Throttled, &c.Dead, &c.Expired,
		&c.Cancelled, &c.Dropped, &c.Crashed, &c.LostTickets, &c.Forgotten}
}

var counterFields = []string{"accepted", "started", "done", "failed", "retried", "throttled", "dead", "expired",
	"cancelled", "dropped", "crashed", "lost_tickets", "forgotten"}

// Tenant returns what stands of one tenant.
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

// Tenants returns what stands of all tenants that are known, by name.
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
			out = append(out, tenantInfo(replyOf(r.next()), ds.Defaults, now))
		}
	}
	return out, nil
}

func tenantInfo(r *reply, defaults Policy, now time.Time) TenantInfo {
	t := TenantInfo{Name: r.str(), Waiting: int(r.int()), Delayed: int(r.int()), Dead: int(r.int())}
	if since := r.instant(); !since.IsZero() {
		t.Oldest = max(0, now.Sub(since))
	}
	t.NextSlot = r.instant()
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
	for i, p := range t.Counters.fields() {
		*p = atoi(h[counterFields[i]])
	}
	return t
}

// forever is FOREVER in lua/tenant.lua.
const forever = 9_000_000_000_000_000

// Stats is what stands of a downstream.
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
	Pools       int // live pools of workers
	Places      int // places of live pools
	Counters    Counters
	ByTenant    []TenantInfo // the busy ones, or all
}

// Level is how many jobs wait.
func (s Stats) Level() int { return s.Waiting + s.Delayed }

// Stats returns what stands of the downstream. With all it reads every tenant that is known, otherwise only those that are
// busy, so that a scrape does not grow with idle tenants; sums are of what was read.
func (a *Admin) Stats(ctx context.Context, all bool) (Stats, error) {
	names, err := a.Names(ctx, !all)
	if err != nil {
		return Stats{}, err
	}
	s := Stats{Downstream: a.q.downstream}
	if s.ByTenant, err = a.infos(ctx, names); err != nil {
		return Stats{}, err
	}
	for _, t := range s.ByTenant {
		s.Waiting += t.Waiting
		s.Delayed += t.Delayed
		s.Dead += t.Dead
		s.Oldest = max(s.Oldest, t.Oldest)
		s.Counters.add(t.Counters)
		if t.Level()+t.Out+t.Running > 0 {
			s.Busy++
		}
	}
	var ds, pools *redis.MapStringStringCmd
	var known, out, run *redis.IntCmd
	var now *redis.TimeCmd
	_, err = a.q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		ds, pools = p.HGetAll(ctx, a.q.downstreamKey()), p.HGetAll(ctx, a.q.poolsKey())
		known, out, run = p.ZCard(ctx, a.q.tenantsKey()), p.ZCard(ctx, a.q.outKey()), p.ZCard(ctx, a.q.runKey())
		now = p.Time(ctx)
		return nil
	})
	if err != nil {
		return Stats{}, a.q.failed(ctx, "read downstream", err)
	}
	s.Policy = readDownstream(ds.Val()).WithDefaults()
	s.Tenants, s.Out, s.Running = int(known.Val()), int(out.Val()), int(run.Val())
	if until := atoi(ds.Val()["until"]); until > now.Val().UnixMicro() {
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
		ids, err = a.q.rdb.LRange(ctx, a.q.waitKey(tenant), 0, last).Result()
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
