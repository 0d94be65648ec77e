package shaper

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// Admin is the operator's view of one downstream: its policies, tenants and jobs. It needs no
// scheduler or worker in its process. Every change applies at once, to the backlog too. It is safe
// for concurrent use.
//
// If a tenant or the downstream was never seen, every call except those that set policies returns
// an *UnseenError.
type Admin struct{ q queue.Queue }

// NewAdmin returns an Admin. It does not talk to Redis.
func NewAdmin(rdb redis.UniversalClient, downstream string) (*Admin, error) {
	q, err := newQueue(rdb, downstream)
	if err != nil {
		return nil, err
	}
	return &Admin{q}, nil
}

// Downstream returns the downstream's policy as it applies, with defaults filled in.
func (a *Admin) Downstream(ctx context.Context) (DownstreamPolicy, error) {
	h, err := a.q.RDB.HGetAll(ctx, a.q.DownstreamKey()).Result()
	if err != nil {
		return DownstreamPolicy{}, a.q.Failed(ctx, "read downstream", err)
	}
	if len(h) == 0 {
		if err := a.seen(ctx); err != nil {
			return DownstreamPolicy{}, err
		}
	}
	if err := a.q.CheckSchema(h["schema"]); err != nil {
		return DownstreamPolicy{}, fmt.Errorf("read downstream: %w", err)
	}
	return readDownstream(h).WithDefaults(), nil
}

// SetDownstream sets those fields of the downstream's policy that are set in p; the others stay as
// they are.
func (a *Admin) SetDownstream(ctx context.Context, p DownstreamPolicy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return a.setPolicy(ctx, "", downstreamFields(p))
}

// setPolicy sets those fields that have a value.
func (a *Admin) setPolicy(ctx context.Context, tenant string, fields []string) error {
	it := newItem(tenant, fields)
	_, err := a.q.Run(ctx, queue.PolicyScript, "set policy", slices.Delete(it, 1, 2)...) // without their number
	return err
}

// Pause lets nothing of a tenant start for d, or until it is resumed if d is not positive. What
// runs goes on. The empty tenant is the whole downstream.
func (a *Admin) Pause(ctx context.Context, tenant string, d time.Duration) error {
	us := "-1"
	if d > 0 {
		us = queue.Micros(max(d, time.Microsecond))
	}
	return a.pause(ctx, tenant, us)
}

// Resume ends a pause, even one that a throttled job caused. The backlog leaves at the tenant's
// rate, without a burst.
func (a *Admin) Resume(ctx context.Context, tenant string) error { return a.pause(ctx, tenant, "0") }

func (a *Admin) pause(ctx context.Context, tenant, us string) error {
	if err := ValidName("tenant", tenant); tenant != "" && err != nil {
		return err
	}
	_, err := a.runSeen(ctx, queue.PauseScript, "pause", tenant, us)
	return err
}

// Seen reports whether Redis holds anything of the downstream: a policy, or traces of a job or of a
// pool of workers.
func (a *Admin) Seen(ctx context.Context) (bool, error) {
	n, err := a.q.RDB.Exists(ctx, a.q.DownstreamKey()).Result()
	if err != nil {
		return false, queue.StoreErr("look for the downstream", err)
	}
	return n == 1, nil
}

// seen returns an *UnseenError if nothing is known of the downstream. Twin: unseen in
// internal/queue/lua/lib/tenant.lua.
func (a *Admin) seen(ctx context.Context) error {
	n, err := a.q.RDB.Exists(ctx, a.q.DownstreamKey(), a.q.TenantsKey()).Result()
	switch {
	case err != nil:
		return a.q.Failed(ctx, "read downstream", err)
	case n == 0:
		return &UnseenError{a.q.Downstream, ""}
	}
	return nil
}

// runSeen runs a script on a tenant ("" = the downstream), and returns an *UnseenError if that was
// never seen. See unseen in internal/queue/lua/lib/tenant.lua.
func (a *Admin) runSeen(ctx context.Context, s *queue.Script, doing, tenant string, args ...any) (any, error) {
	v, err := a.q.Run(ctx, s, doing, append([]any{tenant}, args...)...)
	switch v {
	case "tenant":
		return nil, &UnseenError{a.q.Downstream, tenant}
	case "downstream":
		return nil, &UnseenError{a.q.Downstream, ""}
	}
	return v, err
}
