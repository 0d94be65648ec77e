package buckets

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// MemoryConfig configures a Memory limiter. The zero value is usable.
type MemoryConfig struct {
	// MaxKeys bounds the keys remembered; 0 means 1,000,000. When there are more, of a few keys the
	// one that would soonest count as unused anyway is forgotten.
	MaxKeys int

	// MaxBytes bounds the memory taken by keys and states; 0 means 256 MiB.
	MaxBytes int64

	// Clock returns the time in µs since the epoch; nil means the process's own, which starts at
	// the wall clock's time and never steps. It must be safe for concurrent use. With a Clock,
	// expired keys are forgotten only as new ones come, and by Sweep.
	Clock func() int64
}

// MemoryStats is what a Memory limiter holds.
type MemoryStats struct {
	Keys    int64
	Bytes   int64 // of keys and states, as computed
	Evicted int64 // keys forgotten early, because there were too many
}

// Memory is a Limiter for many keys within one process. A call takes one lock, that of the key's
// shard, allocates nothing for a known key, and ignores the context.
//
// No goroutine is kept for the keys. Those that are as if never used are swept out, a few with each
// new key and the rest by a timer that runs only while there are keys, in steps that hold a lock
// for some 10 µs; their memory is given back. Make it with NewMemory, and Close it to stop the
// timer.
type Memory struct {
	seed  maphash.Seed
	store keyStore
	clock func() int64 // nil: own
	start time.Time    // of the own clock
	epoch int64        // the same instant, µs

	plan  atomic.Pointer[plan]
	setMu sync.Mutex

	sweeping atomic.Bool // a sweep is scheduled
	stepMu   sync.Mutex  // held by a step of it
	closed   bool
	shard    int // the next one to sweep
}

var _ Limiter = (*Memory)(nil)

// NewMemory returns an empty limiter, or an error that names the bad field.
func NewMemory(params Params, cfg MemoryConfig) (*Memory, error) {
	if cfg.MaxKeys < 0 || int64(cfg.MaxKeys) > 1<<31 {
		return nil, fmt.Errorf("%w: MaxKeys %d: want 1 to %d, or 0 for the default", ErrParameter, cfg.MaxKeys, int64(1<<31))
	}
	if cfg.MaxBytes < 0 {
		return nil, fmt.Errorf("%w: MaxBytes %d: want more than 0, or 0 for the default", ErrParameter, cfg.MaxBytes)
	}
	if cfg.MaxKeys == 0 {
		cfg.MaxKeys = 1_000_000
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 256 << 20
	}
	m := &Memory{seed: maphash.MakeSeed(), clock: cfg.Clock, start: time.Now()}
	m.epoch = m.start.UnixMicro()
	p, err := newPlan(params, m.kind())
	if err != nil {
		return nil, err
	}
	m.plan.Store(p)
	added := m.schedule
	if cfg.Clock != nil {
		added = nil // a timer would ask the caller's clock when the caller does not expect it
	}
	m.store = openStore(params.Algorithm, cfg, added)
	return m, nil
}

func openStore(a Algorithm, cfg MemoryConfig, added func()) keyStore {
	// Enough shards that processors seldom contend, each large enough that the bounds bite evenly.
	b := uint(bits.Len(uint(16 * runtime.GOMAXPROCS(0))))
	for b > 0 && cfg.MaxKeys>>b < 256 {
		b--
	}
	switch a {
	case FixedWindow:
		return newStore[WindowState](b, int64(cfg.MaxKeys), cfg.MaxBytes, added)
	case SlidingLog:
		return newStore[LogState](b, int64(cfg.MaxKeys), cfg.MaxBytes, added)
	case SlidingCounter:
		return newStore[CounterState](b, int64(cfg.MaxKeys), cfg.MaxBytes, added)
	default:
		return newStore[BucketState](b, int64(cfg.MaxKeys), cfg.MaxBytes, added)
	}
}

func (m *Memory) kind() clockKind {
	if m.clock != nil {
		return callerClock
	}
	return storeClock
}

func (m *Memory) now() int64 {
	if m.clock != nil {
		return clampInstant(m.clock())
	}
	return m.epoch + time.Since(m.start).Microseconds() // monotonic, and cheaper than time.Now
}

// Params returns the parameters in force.
func (m *Memory) Params() Params { return m.plan.Load().params }

// Set changes the parameters; the next call for any key follows them, and what keys
// have used stays used. The algorithm cannot change.
func (m *Memory) Set(params Params) error {
	p, err := newPlan(params, m.kind())
	if err != nil {
		return err
	}
	m.setMu.Lock()
	defer m.setMu.Unlock()
	if err := sameAlgorithm(m.plan.Load().params, params); err != nil {
		return err
	}
	m.plan.Store(p)
	return nil
}

func sameAlgorithm(have, want Params) error {
	if have.Algorithm != want.Algorithm {
		return fmt.Errorf("%w: algorithm %q: want %q, a limiter keeps its algorithm", ErrParameter, want.Algorithm, have.Algorithm)
	}
	return nil
}

// Allow implements Limiter.
func (m *Memory) Allow(ctx context.Context, key string) (Decision, error) {
	return m.AllowN(ctx, key, 1)
}

// AllowN implements Limiter.
func (m *Memory) AllowN(_ context.Context, key string, n int64) (Decision, error) {
	if n < 0 || key == "" || len(key) > MaxKeyLen {
		return Decision{}, invalid(key, n)
	}
	p := m.plan.Load()
	hash := maphash.String(m.seed, key)
	if n > p.limit {
		return p.never(m.store.take(p, hash, key, m.now(), 0, p.note), n)
	}
	return p.decision(m.store.take(p, hash, key, m.now(), n, p.note)), nil
}

func invalid(key string, n int64) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return checkCost(n)
}

// Check answers as AllowN would, and changes nothing.
func (m *Memory) Check(_ context.Context, key string, n int64) (Decision, error) {
	if err := invalid(key, n); err != nil {
		return Decision{}, err
	}
	p := m.plan.Load()
	hash := maphash.String(m.seed, key)
	if n > p.limit {
		return p.never(m.store.check(p, hash, key, m.now(), 0), n)
	}
	return p.decision(m.store.check(p, hash, key, m.now(), n)), nil
}

// Peek implements Limiter.
func (m *Memory) Peek(ctx context.Context, key string) (Decision, error) {
	return m.Check(ctx, key, 0)
}

// Reset implements Limiter.
func (m *Memory) Reset(_ context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	m.store.reset(maphash.String(m.seed, key), key)
	return nil
}

// Stats returns what the limiter holds now.
func (m *Memory) Stats() MemoryStats { return m.store.stats() }
