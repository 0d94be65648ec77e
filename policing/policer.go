package policing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jobshaper/jobshaper/buckets"
)

// Policer decides about requests by a chain of rules. Make it with New, and Close it to
// stop the timers of its memory. Its methods may be called by many goroutines.
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
	rules, err := named(cfg.Rules)
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

// Rules returns the chain as it is in force, each rule with its name.
func (p *Policer) Rules() []Rule { return slices.Clone(*p.rules.Load()) }

// Set changes the parameters of a rule; the next check from this process follows them,
// and what was used stays used. The algorithm cannot change.
func (p *Policer) Set(name string, spec buckets.Spec) error {
	p.setMu.Lock()
	defer p.setMu.Unlock()
	rules := p.Rules()
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == name })
	if i < 0 {
		return fmt.Errorf("%w: no rule is named %q", ErrRule, name)
	}
	if err := p.store.set(i, spec); err != nil {
		return fmt.Errorf("rule %s: %w", name, err)
	}
	if p.local != nil {
		r := rules[i]
		r.Spec = spec
		if err := p.local.set(i, r.local(p.nodes)); err != nil {
			return errors.Join(fmt.Errorf("rule %s: share of %d nodes: %w", name, p.nodes, err), p.store.set(i, rules[i].Spec))
		}
	}
	rules[i].Spec = spec
	p.rules.Store(&rules)
	return nil
}

// Hitters returns what counts who offers the most, or nil where nobody does.
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
