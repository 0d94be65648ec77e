package policing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/breaker"
	"github.com/jobshaper/jobshaper/internal/usable"
)

// defaultDeadline is how long a check waits for Redis.
const defaultDeadline = 50 * time.Millisecond

// errOpen is the failure of a call that the breaker did not let through.
var errOpen = fmt.Errorf("%w: it failed %d times in a row, and is left alone for a moment", buckets.ErrStore, breaker.After)

// guard is the way to a store that may be away: a deadline on each call, and a breaker.
type guard struct {
	deadline time.Duration
	breaker  breaker.Breaker
}

// do makes a call. Failures of the store wrap buckets.ErrStore, and count if they say that it is
// away. If the caller has gone away the error is context.Canceled, and any other error is the
// call's own: neither counts.
//
// The caller's own deadline counts as ours does: otherwise every caller in a hurry would wait for a
// dead store.
func (g *guard) do(ctx context.Context, call func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, ok := g.breaker.Enter(time.Now())
	if !ok {
		return errOpen
	}
	limited, cancel := context.WithTimeout(ctx, g.deadline)
	defer cancel()
	err := call(limited)
	switch {
	case err == nil:
		g.breaker.Succeeded(p)
	case errors.Is(ctx.Err(), context.Canceled):
		g.breaker.Returned(p)
		err = ctx.Err()
	case errors.Is(err, buckets.ErrStore) && breaker.Away(err):
		g.breaker.Failed(p, time.Now())
	default:
		g.breaker.Returned(p)
	}
	return err
}

// retryAfter is the wait that a caller is told if it was refused because the store is away: until
// the store is tried again, and at least the deadline.
func (g *guard) retryAfter() time.Duration {
	wait, _ := g.breaker.State(time.Now())
	return max(wait, g.deadline)
}

// open reports whether calls are being spared.
func (g *guard) open() bool {
	_, closed := g.breaker.State(time.Now())
	return !closed
}

// obeysDeadlines returns an error for a client that is a nil pointer, or would wait for a dead
// server whatever a context says.
func obeysDeadlines(client redis.UniversalClient) error {
	if value, want := usable.Client(client); want != "" {
		return fmt.Errorf("%w: Redis: %s: want %s", buckets.ErrParameter, value, want)
	}
	return nil
}

// withoutStore decides by the failure policies. A rule with FailClosed refuses before any other
// takes something.
func (p *Policer) withoutStore(ctx context.Context, rules []Rule, asks []ask) (Verdict, error) {
	v := Verdict{Degraded: true, Rulings: make([]Ruling, len(asks))}
	var local []ask
	var at []int // the ruling of each
	for i, a := range asks {
		r := rules[a.rule]
		v.Rulings[i] = Ruling{Rule: r, Decision: buckets.Decision{Allowed: true}}
		beyondShare := a.n > r.local(p.nodes).Limit && a.n <= r.Params.Limit
		switch {
		case r.OnFailure == FailClosed, r.OnFailure == FailLocal && beyondShare:
			v.Unavailable = true
			v.Rulings[i].Decision = buckets.Decision{RetryAfter: p.guard.retryAfter()}
		case r.OnFailure == FailLocal:
			local, at = append(local, a), append(at, i)
		}
	}
	if !v.Unavailable && len(local) > 0 {
		decisions, err := p.local.take(ctx, local)
		if err != nil {
			return Verdict{}, err
		}
		for j, d := range decisions {
			v.Rulings[at[j]].Asked, v.Rulings[at[j]].Decision = true, d
		}
	}
	v.settle()
	return v, nil
}

// share returns one node's part of a limit. A rate stays exact: its period is
// multiplied, unless that exceeds what a Rate can hold.
func share(s buckets.Params, nodes int) buckets.Params {
	n := int64(nodes)
	s.Limit = max(1, s.Limit/n)
	if s.Rate.Period <= buckets.MaxPeriod/time.Duration(n) {
		s.Rate.Period *= time.Duration(n)
	} else {
		s.Rate.Events = max(1, s.Rate.Events/n)
	}
	return s
}

// local returns what a node enforces by itself: its share, where the rule asks for one.
func (r Rule) local(nodes int) buckets.Params {
	if r.OnFailure != FailLocal {
		return r.Params
	}
	return share(r.Params, nodes)
}
