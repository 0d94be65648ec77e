package policing

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobshaper/jobshaper/buckets"
)

// Checker is what decides about a request: a Policer, or a stub in a test.
type Checker interface {
	Check(ctx context.Context, subject Subject, n int64) (Verdict, error)
}

var _ Checker = (*Policer)(nil)

// Check asks every rule that applies whether a request of weight n of the subject passes:
// all of them, and it is taken from each, or it is refused and nothing is taken. n = 0
// looks and takes nothing. A request beyond a limit is refused, with RetryAfter
// buckets.Never.
//
// That Redis is away is no error but a Verdict that is Degraded. An error means that
// there is none: the caller went away (it wraps the context's error), the weight is
// negative (buckets.ErrCost) or a name too long (buckets.ErrKey).
func (p *Policer) Check(ctx context.Context, subject Subject, n int64) (Verdict, error) {
	if n < 0 {
		return Verdict{}, fmt.Errorf("%w: %d: want 0 or more", buckets.ErrCost, n)
	}
	if err := ctx.Err(); err != nil {
		return Verdict{}, err
	}
	tenant := PerTenant.key(subject)
	if len(tenant) > buckets.MaxKeyLen {
		return Verdict{}, fmt.Errorf("%w: %d bytes long: want at most %d", buckets.ErrKey, len(tenant), buckets.MaxKeyLen)
	}
	if n > 0 && p.hitters != nil {
		p.hitters.Offer(tenant)
	}
	rules := *p.rules.Load()
	v, err := p.decide(ctx, rules, p.asks(rules, subject, tenant, n))
	if err != nil {
		return Verdict{}, err
	}
	if n > 0 {
		p.counts.add(v)
		if p.hitters != nil && !v.Allowed && !v.Unavailable {
			p.hitters.Refuse(tenant)
		}
	}
	return v, nil
}

// asks returns what a request asks of each rule that applies.
func (p *Policer) asks(rules []Rule, subject Subject, tenant string, n int64) []ask {
	asks := make([]ask, 0, len(rules))
	for i, r := range rules {
		if r.Heavy != 0 && !p.hitters.Heavy(tenant, r.Heavy) {
			continue
		}
		key := tenant
		if r.Per != PerTenant {
			key = r.Per.key(subject)
		}
		asks = append(asks, ask{rule: i, key: key, n: r.cost(n)})
	}
	return asks
}

// decide asks the store, or the failure policies where it is away.
func (p *Policer) decide(ctx context.Context, rules []Rule, asks []ask) (Verdict, error) {
	var decisions []buckets.Decision
	var err error
	switch {
	case len(asks) == 0:
	case p.guard == nil:
		decisions, err = p.store.take(ctx, asks)
	default:
		err = p.guard.do(ctx, func(ctx context.Context) (err error) {
			decisions, err = p.store.take(ctx, asks)
			return err
		})
		if errors.Is(err, buckets.ErrStore) {
			return p.withoutStore(ctx, rules, asks)
		}
	}
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{Rulings: make([]Ruling, len(asks))}
	for i, d := range decisions {
		v.Rulings[i] = Ruling{Rule: rules[asks[i].rule], Asked: true, Decision: d}
	}
	v.settle()
	return v, nil
}

// withoutStore decides by the failure policies. A rule that is closed refuses before
// any other takes something.
func (p *Policer) withoutStore(ctx context.Context, rules []Rule, asks []ask) (Verdict, error) {
	v := Verdict{Degraded: true, Rulings: make([]Ruling, len(asks))}
	var local []ask
	var at []int // the ruling of each
	for i, a := range asks {
		r := rules[a.rule]
		v.Rulings[i] = Ruling{Rule: r, Decision: buckets.Decision{Allowed: true}}
		beyondShare := a.n > r.local(p.nodes).Limit && a.n <= r.Spec.Limit
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
