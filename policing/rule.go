package policing

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jobshaper/jobshaper/buckets"
)

// ErrRule is wrapped by every error about an unusable rule, except what buckets says about a rate
// or parameter.
var ErrRule = errors.New("invalid rule")

// Bounds of a chain of rules, and of the Cost of one.
const (
	MaxRules = 32
	MaxCost  = 1_000_000
)

// Rule is one limit of a chain. A plain value; compare with ==.
type Rule struct {
	// Name says which rule refused, and is part of its keys in Redis: letters, digits and
	// any of "._-", at most 64. If it is empty, the Policer names the rule after its scope
	// and algorithm ("tenant-token-bucket"), with a number where there are several.
	Name string

	// Params is the algorithm and its parameters.
	Params buckets.Params

	// Per says which requests share the limit.
	Per Scope

	// OnFailure says what happens while Redis is away.
	OnFailure FailurePolicy

	// Cost is how many units a request of weight 1 takes, at most Params.Limit; 0 means 1.
	Cost int64

	// Heavy applies the rule only to tenants whose share of all offers exceeds it; 0 applies
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
	case r.Heavy < 0 || r.Heavy >= whole:
		return fmt.Errorf("%w: share %v: want more than 0%% and less than 100%%", ErrRule, r.Heavy)
	case r.Heavy != 0 && r.Per != PerTenant:
		return fmt.Errorf("%w: per=%v of a heavy rule: want per=tenant, since tenants are what is counted", ErrRule, r.Per)
	}
	if err := r.Params.Validate(); err != nil {
		return err
	}
	if r.Cost > r.Params.Limit {
		return fmt.Errorf("%w: cost %d: want at most %d, the limit, or nothing could ever pass", ErrRule, r.Cost, r.Params.Limit)
	}
	return nil
}

// cost returns what a request of weight n takes of the rule. A product too large for any limit
// stays too large.
func (r Rule) cost(n int64) int64 {
	const tooLarge = buckets.MaxLimit + 1
	if r.Cost <= 1 || n <= 0 {
		return n
	}
	return min(n, tooLarge) * r.Cost
}

// RuleOf returns the rule of an algorithm by the name it has in a configuration file: token_bucket,
// leaky_bucket, fixed_window, sliding_log, sliding_counter. A window's limit and length are the
// rate's events and period. burst is the capacity of a bucket, where 0 means the rate's events:
// 100/s lets 100 pass at once. A window has none.
func RuleOf(algorithm string, rate buckets.Rate, burst int64) (Rule, error) {
	params := buckets.Params{Algorithm: buckets.Algorithm(strings.ReplaceAll(algorithm, "_", "-"))}
	if err := rate.Validate(); err != nil {
		return Rule{}, fmt.Errorf("%s: %w", algorithm, err)
	}
	switch params.Algorithm {
	case buckets.TokenBucket, buckets.LeakyBucket:
		params.Rate, params.Limit = rate, burst
		if burst == 0 {
			params.Limit = rate.Events
		}
	case buckets.FixedWindow, buckets.SlidingLog, buckets.SlidingCounter:
		if burst != 0 {
			return Rule{}, fmt.Errorf("%w: burst %d of %s: want it only with token_bucket or leaky_bucket", ErrRule, burst, algorithm)
		}
		params.Limit, params.Window = rate.Events, rate.Period
	default:
		return Rule{}, fmt.Errorf("%w: algorithm %q: want token_bucket, leaky_bucket, fixed_window, sliding_log or sliding_counter", ErrRule, algorithm)
	}
	r := Rule{Params: params}
	return r, r.Validate()
}

// Named returns the rules, each with a name, as a Policer would have them, or an error that says
// which of them is wrong. It is the first step of a Checker other than ours, such as a queue's
// script.
func Named(rules []Rule) ([]Rule, error) {
	if len(rules) < 1 || len(rules) > MaxRules {
		return nil, fmt.Errorf("%w: %d rules: want 1 to %d", ErrRule, len(rules), MaxRules)
	}
	rules = slices.Clone(rules)
	taken := map[string]bool{}
	for i, r := range rules {
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("rule %d (%v): %w", i+1, r, err)
		}
		if r.Name != "" && taken[r.Name] {
			return nil, fmt.Errorf("%w: two rules are named %s", ErrRule, r.Name)
		}
		taken[r.Name] = true
	}
	for i := range rules {
		r := &rules[i]
		if r.Name != "" {
			continue
		}
		base := r.Per.String() + "-" + string(r.Params.Algorithm)
		r.Name = base
		for n := 2; taken[r.Name]; n++ {
			r.Name = fmt.Sprintf("%s-%d", base, n)
		}
		taken[r.Name] = true
	}
	return rules, nil
}

// Scope says which requests share a limit.
type Scope int

const (
	// PerTenant gives each tenant of each downstream a limit of its own. The zero value.
	PerTenant Scope = iota
	// PerDownstream gives each downstream one limit, which its tenants share.
	PerDownstream
	// Global is one limit for all.
	Global
)

var scopeNames = []string{PerTenant: "tenant", PerDownstream: "downstream", Global: "global"}

// String returns the scope as a rule's text has it: "tenant", "downstream", "global".
func (s Scope) String() string { return nameOf(scopeNames, int(s)) }

// parseScope reads what String writes.
func parseScope(text string) (Scope, error) {
	i, err := indexOf(scopeNames, "per", text)
	return Scope(i), err
}

// Subject is who asks: a tenant that offers something to a downstream. Any text will do, even none:
// all who come without a name then count as one.
type Subject struct{ Downstream, Tenant string }

// key returns the subject's key under the scope. The first slash is the one between the two
// names, so no two subjects of a scope share a key.
func (s Scope) key(subject Subject) string {
	switch s {
	case Global:
		return "all"
	case PerDownstream:
		return escapeSlash.Replace(subject.Downstream) + "/"
	default:
		return escapeSlash.Replace(subject.Downstream) + "/" + subject.Tenant
	}
}

var escapeSlash = strings.NewReplacer("%", "%25", "/", "%2F")

// FailurePolicy says what a rule answers while Redis does not answer.
type FailurePolicy int

const (
	// FailOpen admits, and counts what it admitted. The zero value.
	FailOpen FailurePolicy = iota
	// FailClosed refuses, as unavailable: over HTTP 503, not 429.
	FailClosed
	// FailLocal decides in the process's memory by its share of the limit: the limit and the rate
	// divided by Config.Nodes, rounded down, at least 1. A request that costs more than the share
	// is refused as unavailable. Redis is not told afterwards what was admitted this way.
	FailLocal
)

var failureNames = []string{FailOpen: "open", FailClosed: "closed", FailLocal: "local"}

// String returns the policy as a rule's text has it: "open", "closed", "local".
func (f FailurePolicy) String() string { return nameOf(failureNames, int(f)) }

// parseFailurePolicy reads what String writes.
func parseFailurePolicy(text string) (FailurePolicy, error) {
	i, err := indexOf(failureNames, "on_failure", text)
	return FailurePolicy(i), err
}

// nameOf and indexOf turn a small enumeration into text and back.
func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("invalid(%d)", i)
	}
	return names[i]
}

func indexOf(names []string, field, text string) (int, error) {
	for i, name := range names {
		if name == text {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: %s=%q: want %s", ErrRule, field, text, strings.Join(names, " or "))
}
