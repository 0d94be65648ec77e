package shaper

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Admin is the operator's view of one downstream: its policies, tenants and jobs. It needs no scheduler or worker in its
// process. Every change holds at once, for the backlog too. It is safe for concurrent use.
//
// Where a tenant or the downstream was never seen, every call but those that set policies returns an *UnseenError.
type Admin struct{ q queue }

// NewAdmin returns an Admin. It does not talk to Redis.
func NewAdmin(rdb redis.UniversalClient, downstream string) (*Admin, error) {
	q, err := newQueue(rdb, downstream)
	if err != nil {
		return nil, err
	}
	return &Admin{q}, nil
}

// setPolicy sets those of the fields that have a value.
func (a *Admin) setPolicy(ctx context.Context, tenant string, fields []string) error {
	args := []any{tenant}
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] != "" {
			args = append(args, fields[i], fields[i+1])
		}
	}
	_, err := a.q.run(ctx, policyScript, "set policy", args...)
	return err
}

// Downstream returns the downstream's policy as it applies, defaults filled in.
func (a *Admin) Downstream(ctx context.Context) (DownstreamPolicy, error) {
	h, err := a.q.rdb.HGetAll(ctx, a.q.downstreamKey()).Result()
	if err != nil {
		return DownstreamPolicy{}, a.q.failed(ctx, "read downstream", err)
	}
	if len(h) == 0 {
		if err := a.seen(ctx); err != nil {
			return DownstreamPolicy{}, err
		}
	}
	return readDownstream(h).WithDefaults(), nil
}

// seen returns an *UnseenError where nothing is known of the downstream. Twin: unseen in lua/lib/tenant.lua.
func (a *Admin) seen(ctx context.Context) error {
	n, err := a.q.rdb.Exists(ctx, a.q.downstreamKey(), a.q.tenantsKey()).Result()
	switch {
	case err != nil:
		return a.q.failed(ctx, "read downstream", err)
	case n == 0:
		return &UnseenError{a.q.downstream, ""}
	}
	return nil
}

// SetDownstream sets those fields of the downstream's policy that are set in p; the others stay as they are.
func (a *Admin) SetDownstream(ctx context.Context, p DownstreamPolicy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return a.setPolicy(ctx, "", downstreamFields(p))
}

// SetTenant sets those fields of a tenant's policy that are set in p; the others stay as they are. A tenant that was
// set is known, see RefuseUnknown.
func (a *Admin) SetTenant(ctx context.Context, tenant string, p Policy) error {
	if err := firstErr(ValidName("tenant", tenant), p.Validate()); err != nil {
		return err
	}
	return a.setPolicy(ctx, tenant, policyFields(p))
}

// Pause lets nothing of a tenant start for d, or until it is resumed if d is not positive. What runs goes on.
// The empty tenant is the whole downstream.
func (a *Admin) Pause(ctx context.Context, tenant string, d time.Duration) error {
	us := "-1"
	if d > 0 {
		us = micros(max(d, time.Microsecond))
	}
	return a.pause(ctx, tenant, us)
}

// Resume ends a pause, also one that a throttled job caused. The backlog leaves at the tenant's rate, without a burst.
func (a *Admin) Resume(ctx context.Context, tenant string) error { return a.pause(ctx, tenant, "0") }

func (a *Admin) pause(ctx context.Context, tenant, us string) error {
	if tenant != "" {
		if err := ValidName("tenant", tenant); err != nil {
			return err
		}
	}
	_, err := a.q.runSeen(ctx, pauseScript, "pause", tenant, us)
	return err
}

// Purge cancels what waits in a tenant's bucket or is delayed, and returns how many jobs that were.
func (a *Admin) Purge(ctx context.Context, tenant string) (int, error) {
	if err := ValidName("tenant", tenant); err != nil {
		return 0, err
	}
	for total := 0; ; {
		v, err := a.q.runSeen(ctx, purgeScript, "purge", tenant)
		if err != nil {
			return total, err
		}
		n, _ := v.(int64)
		if n == 0 {
			return total, nil
		}
		total += int(n)
	}
}

// Remove forgets a tenant and its policy. It is an error if anything of the tenant is left.
func (a *Admin) Remove(ctx context.Context, tenant string) error {
	if err := ValidName("tenant", tenant); err != nil {
		return err
	}
	v, err := a.q.runSeen(ctx, forgetScript, "remove tenant", tenant)
	if err != nil {
		return err
	}
	if r := replyOf(v); r.more() {
		return &FieldError{"tenant", tenant, fmt.Sprintf("nothing left of it, but %d jobs wait, %d are in flight, %d are dead: purge, or remove the dead first", r.int(), r.int(), r.int())}
	}
	return nil
}

// Dead returns up to limit dead jobs of a tenant, the latest first.
func (a *Admin) Dead(ctx context.Context, tenant string, limit int) ([]Job, error) {
	return a.list(ctx, tenant, StateDead, limit)
}

// RequeueDead brings dead jobs back to the front of their bucket, with all their attempts before them; without ids all of
// the tenant's. full tells that it stopped because the bucket has no more room.
func (a *Admin) RequeueDead(ctx context.Context, tenant string, ids ...string) (requeued int, full bool, err error) {
	return a.dead(ctx, "requeue", tenant, ids)
}

// RemoveDead forgets dead jobs; without ids all of the tenant's.
func (a *Admin) RemoveDead(ctx context.Context, tenant string, ids ...string) (int, error) {
	n, _, err := a.dead(ctx, "forget", tenant, ids)
	return n, err
}

func (a *Admin) dead(ctx context.Context, verb, tenant string, ids []string) (n int, full bool, err error) {
	if err := ValidName("tenant", tenant); err != nil {
		return 0, false, err
	}
	for _, id := range ids {
		if err := ValidName("id", id); err != nil {
			return 0, false, err
		}
	}
	if len(ids) == 0 {
		if ids, err = a.q.rdb.ZRange(ctx, a.q.deadKey(tenant), 0, -1).Result(); err != nil {
			return 0, false, a.q.failed(ctx, "list dead jobs", err, tenant)
		}
	}
	for more := true; more && !full; more = len(ids) > 0 { // with none too: the script knows whether the tenant was ever seen
		k := min(len(ids), batch)
		args := []any{verb}
		for _, id := range ids[:k] {
			args = append(args, id)
		}
		ids = ids[k:]
		v, err := a.q.runSeen(ctx, deadScript, verb+" dead jobs", tenant, args...)
		if err != nil {
			return n, full, err
		}
		r := replyOf(v)
		n += int(r.int())
		full = r.int() == 1
	}
	return n, full, nil
}

// Names returns the tenants that are known, sorted; with busy only those that have jobs waiting or in flight.
func (a *Admin) Names(ctx context.Context, busy bool) ([]string, error) {
	lowest := "-inf"
	if busy {
		lowest = "9000000000000000" // FOREVER in lua/lib/tenant.lua
	}
	names, err := a.q.rdb.ZRangeByScore(ctx, a.q.tenantsKey(), &redis.ZRangeBy{Min: lowest, Max: "+inf"}).Result()
	if err != nil {
		return nil, a.q.failed(ctx, "list tenants", err)
	}
	if len(names) == 0 {
		return nil, a.seen(ctx)
	}
	sort.Slice(names, func(i, j int) bool { return strings.ToLower(names[i]) < strings.ToLower(names[j]) })
	return names, nil
}
