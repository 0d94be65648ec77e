package policing

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
)

// Bounds of a Config.
const (
	MaxRules = 32
	MaxNodes = 10_000
)

// Config is what a Policer is made with. Only Rules must be set.
type Config struct {
	// Rules is the chain, 1 to MaxRules. The order makes no difference to what passes.
	Rules []Rule

	// Redis has the state, shared by all Policers with the same Prefix, Tag and names of
	// rules; nil means this process's memory. The client must obey deadlines
	// (ContextTimeoutEnabled), and is not closed.
	Redis redis.UniversalClient

	// Prefix begins every key in Redis, and Tag is their hash tag: one for the chain, so
	// that a check is one script, on one node of a cluster. "" means "policing" for each.
	Prefix, Tag string

	// Nodes is how many processes share the limits, for rules with FailLocal; 0 means 1.
	Nodes int

	// Deadline bounds the wait of a check for Redis; 0 means DefaultDeadline.
	Deadline time.Duration

	// MaxKeys bounds the keys remembered in memory for each rule; 0 means 1,000,000.
	MaxKeys int

	// Hitters counts who offers and is refused the most; nil means that nobody counts,
	// unless a rule is for heavy keys: then one is made with its defaults.
	Hitters *Hitters

	// Clock returns the time in µs since the epoch, for tests and traces; nil means Redis'
	// own, or the process's. It must not step back.
	Clock func() int64
}

// fill sets what is at its default, and returns an error that names the bad field.
func (c *Config) fill() error {
	c.Nodes = cmp.Or(c.Nodes, 1)
	if c.Nodes < 1 || c.Nodes > MaxNodes {
		return fmt.Errorf("%w: Nodes %d: want 1 to %d, or 0 for 1", buckets.ErrParameter, c.Nodes, MaxNodes)
	}
	c.Deadline = cmp.Or(c.Deadline, DefaultDeadline)
	c.Prefix, c.Tag = cmp.Or(c.Prefix, "policing"), cmp.Or(c.Tag, "policing")
	if c.Deadline < time.Millisecond {
		return fmt.Errorf("%w: Deadline %v: want at least 1ms", buckets.ErrParameter, c.Deadline)
	}
	if c.Redis == nil {
		c.Nodes = 1
		return nil
	}
	return obeysDeadlines(c.Redis)
}

// named returns the rules with a name each, or an error.
func named(rules []Rule) ([]Rule, error) {
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
		base := r.Per.String() + "-" + string(r.Spec.Algorithm)
		r.Name = base
		for n := 2; taken[r.Name]; n++ {
			r.Name = fmt.Sprintf("%s-%d", base, n)
		}
		taken[r.Name] = true
	}
	return rules, nil
}
