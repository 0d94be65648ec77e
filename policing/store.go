package policing

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"

	"github.com/jobshaper/jobshaper/buckets"
)

// ask is what a request asks of one rule.
type ask struct {
	rule int // its index in the chain
	key  string
	n    int64
}

// store is the state of a chain. take decides all asks or takes nothing, as buckets.TakeAll does:
// if one is refused, the decisions about the others say what is left with nothing taken, and in
// Allowed whether that rule alone would have let it pass.
type store interface {
	take(ctx context.Context, asks []ask) ([]buckets.Decision, error)
	set(rule int, params buckets.Params) error
	close()
}

// redisStore keeps the whole chain in one slot, and asks it with one script.
type redisStore struct{ limiters []*buckets.Redis }

func newRedisStore(rules []Rule, cfg Config) (*redisStore, error) {
	s := &redisStore{}
	for _, r := range rules {
		l, err := buckets.NewRedis(cfg.Redis, r.Params, buckets.RedisConfig{Prefix: cfg.Prefix + ":" + r.Name, Tag: cfg.Tag, Clock: cfg.Clock})
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		s.limiters = append(s.limiters, l)
	}
	return s, nil
}

func (s *redisStore) take(ctx context.Context, asks []ask) ([]buckets.Decision, error) {
	if len(asks) == 1 { // which shares scripts with others who ask at the same time
		d, err := s.limiters[asks[0].rule].AllowN(ctx, asks[0].key, asks[0].n)
		if err != nil && !errors.Is(err, buckets.ErrTooLarge) {
			return nil, err
		}
		return []buckets.Decision{d}, nil
	}
	requests := make([]buckets.Request, len(asks))
	for i, a := range asks {
		requests[i] = buckets.Request{Limiter: s.limiters[a.rule], Key: a.key, N: a.n}
	}
	decisions, _, err := buckets.TakeAll(ctx, requests...)
	return decisions, err
}

func (s *redisStore) set(rule int, params buckets.Params) error { return s.limiters[rule].Set(params) }

func (s *redisStore) close() {} // the client is the caller's

// memoryStore keeps the chain in this process. A request that asks several rules first locks their
// keys, all requests in the same order, so that no other comes in between.
type memoryStore struct {
	limiters []*buckets.Memory
	locks    [stripes]sync.Mutex
}

// newMemoryStore makes the store of one node of cfg.Nodes.
func newMemoryStore(rules []Rule, cfg Config) (*memoryStore, error) {
	s := &memoryStore{}
	for _, r := range rules {
		l, err := buckets.NewMemory(r.local(cfg.Nodes), buckets.MemoryConfig{MaxKeys: cfg.MaxKeys, Clock: cfg.Clock})
		if err != nil {
			s.close()
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		s.limiters = append(s.limiters, l)
	}
	return s, nil
}

func (s *memoryStore) take(ctx context.Context, asks []ask) ([]buckets.Decision, error) {
	decisions := make([]buckets.Decision, len(asks))
	if len(s.limiters) > 1 {
		held := locksetOf(asks)
		s.lock(held)
		defer s.unlock(held)
		if all, err := s.look(ctx, asks, decisions); err != nil || !all {
			return decisions, err
		}
	}
	for i, a := range asks {
		// What passed a moment ago still does, since time only adds room. Only a caller's
		// clock that stepped back in between can refuse here; then this refusal stands.
		d, err := s.limiters[a.rule].AllowN(ctx, a.key, a.n)
		if err != nil && !errors.Is(err, buckets.ErrTooLarge) {
			return nil, err
		}
		decisions[i] = d
	}
	return decisions, nil
}

// look reports whether all would pass, and if not, fills in the decisions.
func (s *memoryStore) look(ctx context.Context, asks []ask, decisions []buckets.Decision) (bool, error) {
	all := true
	for i, a := range asks {
		d, err := s.limiters[a.rule].Check(ctx, a.key, a.n)
		if err != nil && !errors.Is(err, buckets.ErrTooLarge) {
			return false, err
		}
		decisions[i] = d
		all = all && d.Allowed
	}
	if all {
		return true, nil
	}
	for i, a := range asks {
		if decisions[i].Allowed { // as if taken; but nothing will be
			d, err := s.limiters[a.rule].Peek(ctx, a.key)
			if err != nil {
				return false, err
			}
			decisions[i] = d
		}
	}
	return false, nil
}

func (s *memoryStore) set(rule int, params buckets.Params) error { return s.limiters[rule].Set(params) }

func (s *memoryStore) close() {
	for _, l := range s.limiters {
		_ = l.Close() // cannot fail: it stops a timer
	}
}

// stripes is how many locks the keys of a memoryStore share.
const stripes = 64

// lockset is a set of stripes, a bit each. Everybody takes them from the lowest bit up, so no two
// wait for each other.
type lockset uint64

var stripeSeed = maphash.MakeSeed()

// locksetOf returns the stripes of the asks. The same key under two rules may share one.
func locksetOf(asks []ask) lockset {
	var set lockset
	for _, a := range asks {
		set |= 1 << (maphash.String(stripeSeed, a.key) % stripes)
	}
	return set
}

func (s *memoryStore) lock(set lockset) {
	for ; set != 0; set &= set - 1 {
		s.locks[bits.TrailingZeros64(uint64(set))].Lock()
	}
}

func (s *memoryStore) unlock(set lockset) {
	for ; set != 0; set &= set - 1 {
		s.locks[bits.TrailingZeros64(uint64(set))].Unlock()
	}
}
