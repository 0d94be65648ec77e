package policing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
)

// maxNodes is the largest Nodes of a Config.
const maxNodes = 10_000

// Config configures a Policer. Only Rules must be set.
type Config struct {
	// Rules is the chain, 1 to MaxRules. The order makes no difference to what passes.
	Rules []Rule

	// Redis holds the state, shared by all Policers with the same Prefix, Tag and names of
	// rules; nil means this process's memory. The client must obey deadlines
	// (ContextTimeoutEnabled), and is not closed.
	Redis redis.UniversalClient

	// Prefix begins every key in Redis, and Tag is their hash tag: one for the chain, so
	// that a check is one script, on one node of a cluster. "" means "policing" for each.
	Prefix, Tag string

	// Nodes is how many processes share the limits, for rules with FailLocal: up to
	// 10,000; 0 means 1.
	Nodes int

	// Deadline bounds the wait of a check for Redis; 0 means 50ms.
	Deadline time.Duration

	// MaxKeys bounds the keys remembered in memory for each rule; 0 means 1,000,000.
	MaxKeys int

	// Hitters counts who offers and who is refused the most; nil means that nothing is counted,
	// unless a rule is for heavy keys: then New makes one with the defaults.
	Hitters *Hitters

	// Clock returns the time in µs since the epoch, for tests and traces; nil means Redis'
	// own, or the process's. It must not step back.
	Clock func() int64
}

// fill sets the defaults, and returns an error that names the bad field.
func (c *Config) fill() error {
	c.Nodes = cmp.Or(c.Nodes, 1)
	if c.Nodes < 1 || c.Nodes > maxNodes {
		return fmt.Errorf("%w: Nodes %d: want 1 to %d, or 0 for 1", buckets.ErrParameter, c.Nodes, maxNodes)
	}
	c.Deadline = cmp.Or(c.Deadline, defaultDeadline)
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

// Policer decides about requests by a chain of rules. Make it with New, and Close it to
// stop the timers of its memory. Its methods are safe for concurrent use.
type Policer struct {
	store   store
	local   *memoryStore // every rule's share, for FailLocal; nil without Redis
	guard   *guard       // nil without Redis
	nodes   int
	hitters *Hitters
	counts  counters

	rules atomic.Pointer[[]Rule] // never changed in place
	setMu sync.Mutex
}

// New returns a Policer, or an error that names the bad field. It does not talk to Redis.
func New(cfg Config) (*Policer, error) {
	rules, err := Named(cfg.Rules)
	if err != nil {
		return nil, err
	}
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	p := &Policer{nodes: cfg.Nodes, hitters: cfg.Hitters}
	p.rules.Store(&rules)
	heavy := func(r Rule) bool { return r.Heavy != 0 }
	if p.hitters == nil && slices.ContainsFunc(rules, heavy) {
		if p.hitters, err = NewHitters(HittersConfig{}); err != nil {
			return nil, err
		}
	}
	memory, err := newMemoryStore(rules, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Redis == nil {
		p.store = memory
		return p, nil
	}
	p.local, p.guard = memory, &guard{deadline: cfg.Deadline}
	if p.store, err = newRedisStore(rules, cfg); err != nil {
		return nil, err
	}
	return p, nil
}

// Rules returns the chain in force, each rule with its name.
func (p *Policer) Rules() []Rule { return slices.Clone(*p.rules.Load()) }

// Set changes the parameters of a rule; the next check from this process follows them,
// and what was used stays used. The algorithm cannot change.
func (p *Policer) Set(name string, params buckets.Params) error {
	p.setMu.Lock()
	defer p.setMu.Unlock()
	rules := p.Rules()
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == name })
	if i < 0 {
		return fmt.Errorf("%w: no rule is named %q", ErrRule, name)
	}
	if err := p.store.set(i, params); err != nil {
		return fmt.Errorf("rule %s: %w", name, err)
	}
	if p.local != nil {
		r := rules[i]
		r.Params = params
		if err := p.local.set(i, r.local(p.nodes)); err != nil {
			return errors.Join(fmt.Errorf("rule %s: share of %d nodes: %w", name, p.nodes, err), p.store.set(i, rules[i].Params))
		}
	}
	rules[i].Params = params
	p.rules.Store(&rules)
	return nil
}

// Hitters returns what counts who offers the most, or nil if nothing does.
func (p *Policer) Hitters() *Hitters { return p.hitters }

// Close stops the timers that forget unused keys. The Policer goes on to answer. Close
// may be called twice.
func (p *Policer) Close() error {
	p.store.close()
	if p.local != nil {
		p.local.close()
	}
	return nil
}

// Allow is Check with a weight of 1, and says no more than whether the request passes.
func (p *Policer) Allow(ctx context.Context, subject Subject) (bool, error) {
	v, err := p.Check(ctx, subject, 1)
	return v.Allowed, err
}

// Check asks every rule that applies whether a request of weight n from the subject passes. If it
// passes all of them, it is taken from each; otherwise it is refused and nothing is taken. n = 0
// looks and takes nothing. A request beyond a limit is refused, with RetryAfter buckets.Never.
//
// That Redis is away is not an error but a Degraded Verdict. An error means that there is no
// Verdict: the caller went away (it wraps the context's error), the weight is negative
// (buckets.ErrCost) or a name is too long (buckets.ErrKey).
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
		if r.Heavy != 0 && !p.hitters.heavy(tenant, r.Heavy) {
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
