package policing

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/breaker"
)

// Checker decides about requests: a Policer, or a stub in a test.
type Checker interface {
	Check(ctx context.Context, subject Subject, n int64) (Verdict, error)
}

var _ Checker = (*Policer)(nil)

// single is a chain of one rule over a limiter of the caller's.
type single struct {
	rule    Rule
	limiter buckets.Limiter
}

// Single returns a Checker of one rule over a limiter of the caller's, such as a Hybrid, for use
// with Middleware or a Waiter. The limiter decides; all that counts of the rule is its name, which
// must be set, its scope, its cost, and its failure policy, which cannot be FailLocal. The limiter
// should answer soon even while its store is away: a Hybrid does.
func Single(rule Rule, limiter Lender) (Checker, error) {
	rule.Params = limiter.Params()
	if err := rule.Validate(); err != nil {
		return nil, err
	}
	switch {
	case rule.Name == "":
		return nil, fmt.Errorf("%w: no name", ErrRule)
	case rule.OnFailure == FailLocal:
		return nil, fmt.Errorf("%w: on_failure=local of %s: want open or closed, a limiter of the caller's has no share", ErrRule, rule.Name)
	case rule.Heavy != 0:
		return nil, fmt.Errorf("%w: share of %s: want none, nobody counts the offers", ErrRule, rule.Name)
	}
	return &single{rule, limiter}, nil
}

// Check implements Checker.
func (s *single) Check(ctx context.Context, subject Subject, n int64) (Verdict, error) {
	r := Ruling{Rule: s.rule, Asked: true}
	var err error
	r.Decision, err = s.limiter.AllowN(ctx, s.rule.Per.key(subject), s.rule.cost(n))
	var v Verdict
	switch {
	case err == nil, errors.Is(err, buckets.ErrTooLarge):
	case errors.Is(ctx.Err(), context.Canceled):
		return Verdict{}, ctx.Err()
	case errors.Is(err, buckets.ErrStore):
		v.Degraded, v.Unavailable, r.Asked = true, s.rule.OnFailure == FailClosed, false
		r.Decision = buckets.Decision{Allowed: !v.Unavailable}
		if v.Unavailable {
			r.RetryAfter = breaker.For
		}
	default:
		return Verdict{}, err
	}
	v.Rulings = []Ruling{r}
	v.settle()
	return v, nil
}
