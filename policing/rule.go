package policing

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// ErrRule is wrapped by every error about an unusable rule, but for what buckets says
// about a rate or parameter.
var ErrRule = errors.New("invalid rule")

// MaxCost is the largest Cost of a rule.
const MaxCost = 1_000_000

// Rule is one limit of a chain. A plain value; compare with ==.
type Rule struct {
	// Name says which rule refused, and is part of its keys in Redis: letters, digits and
	// any of "._-", at most 64. Where it is empty the Policer names the rule after its scope
	// and algorithm ("tenant-token-bucket"), with a number where there are several.
	Name string

	// Spec is the algorithm and its parameters.
	Spec buckets.Spec

	// Per says which requests share the limit.
	Per Scope

	// OnFailure says what happens while Redis is away.
	OnFailure FailurePolicy

	// Cost is how many units a request of weight 1 takes, at most Spec.Limit; 0 means 1.
	Cost int64

	// Heavy applies the rule only to tenants whose part of all offers exceeds it; 0 applies
	// it to all. See Hitters for what counts as an offer.
	Heavy Share
}

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Validate returns nil for a rule that can be kept, and otherwise an error that wraps
// ErrRule, buckets.ErrParameter or buckets.ErrRate and says what would be right.
func (r Rule) Validate() error {
	switch {
	case r.Name != "" && !nameRE.MatchString(r.Name):
		return fmt.Errorf("%w: name %q: want letters, digits and ._-, at most 64", ErrRule, r.Name)
	case r.Per < PerTenant || r.Per > Global:
		return fmt.Errorf("%w: scope %d: want PerTenant, PerDownstream or Global", ErrRule, r.Per)
	case r.OnFailure < FailOpen || r.OnFailure > FailLocal:
		return fmt.Errorf("%w: failure policy %d: want FailOpen, FailClosed or FailLocal", ErrRule, r.OnFailure)
	case r.Cost < 0 || r.Cost > MaxCost:
		return fmt.Errorf("%w: cost %d: want 1 to %d", ErrRule, r.Cost, MaxCost)
	case r.Heavy < 0 || r.Heavy >= Whole:
		return fmt.Errorf("%w: share %v: want more than 0%% and less than 100%%", ErrRule, r.Heavy)
	case r.Heavy != 0 && r.Per != PerTenant:
		return fmt.Errorf("%w: per=%v of a heavy rule: want per=tenant, for tenants are what is counted", ErrRule, r.Per)
	}
	if err := r.Spec.Validate(); err != nil {
		return err
	}
	if r.Cost > r.Spec.Limit {
		return fmt.Errorf("%w: cost %d: want at most %d, the limit, or nothing could ever pass", ErrRule, r.Cost, r.Spec.Limit)
	}
	return nil
}

// cost returns what a request of weight n takes of the rule. A product too large for any
// limit stays so.
func (r Rule) cost(n int64) int64 {
	const tooLarge = buckets.MaxLimit + 1
	if r.Cost <= 1 || n <= 0 {
		return n
	}
	return min(n, tooLarge) * r.Cost
}

// RuleOf returns the rule of an algorithm by the name it has in a configuration file:
// token_bucket, leaky_bucket, fixed_window, sliding_log, sliding_counter. A window's limit
// and length are the rate's events and period. burst is the capacity of a bucket, 0
// meaning the events of the rate: 100/s lets 100 pass at once. A window has none.
func RuleOf(algorithm string, rate buckets.Rate, burst int64) (Rule, error) {
	spec := buckets.Spec{Algorithm: buckets.Algorithm(strings.ReplaceAll(algorithm, "_", "-"))}
	if err := rate.Validate(); err != nil {
		return Rule{}, fmt.Errorf("%s: %w", algorithm, err)
	}
	switch spec.Algorithm {
	case buckets.TokenBucket, buckets.LeakyBucket:
		spec.Rate, spec.Limit = rate, burst
		if burst == 0 {
			spec.Limit = rate.Events
		}
	case buckets.FixedWindow, buckets.SlidingLog, buckets.SlidingCounter:
		if burst != 0 {
			return Rule{}, fmt.Errorf("%w: burst %d of %s: want it only with token_bucket or leaky_bucket", ErrRule, burst, algorithm)
		}
		spec.Limit, spec.Window = rate.Events, rate.Period
	default:
		return Rule{}, fmt.Errorf("%w: algorithm %q: want token_bucket, leaky_bucket, fixed_window, sliding_log or sliding_counter", ErrRule, algorithm)
	}
	r := Rule{Spec: spec}
	return r, r.Validate()
}

// quota returns how much passes in how long: a window's limit and length, a bucket's
// capacity and the time it takes to fill.
func quota(s buckets.Spec) (limit int64, in time.Duration) {
	if s.Window > 0 {
		return s.Limit, s.Window
	}
	if s.Rate.Events <= 0 {
		return s.Limit, 0
	}
	full := float64(s.Limit) / float64(s.Rate.Events) * float64(s.Rate.Period)
	return s.Limit, time.Duration(min(full, float64(buckets.MaxSpan)))
}
