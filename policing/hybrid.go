package policing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/usable"
)

// Lender is a limiter that tells its parameters. Nodes lease from one that they share, such as a
// buckets.Redis.
type Lender interface {
	buckets.Limiter
	Params() buckets.Params
}

// HybridConfig configures a Hybrid. Lease must be set.
type HybridConfig struct {
	// Lease is how many tokens of a key are fetched at once: 1 to the limit. The limit divided by
	// some ten times the number of nodes is a good choice.
	Lease int64

	// Deadline bounds the wait for the lender; 0 means 50ms.
	Deadline time.Duration

	// MaxKeys bounds the keys with a lease; 0 means 100,000. When there are more, a lease is given
	// up.
	MaxKeys int

	// Clock returns the time in µs, for tests; nil means the process's own. It must not
	// step back.
	Clock func() int64
}

// Hybrid is a Limiter that leases tokens in small batches from a limiter that many nodes share, and
// decides locally while they last: one round trip for Lease requests.
//
// It promises, for each key, with nodes that each lease at most Lease at once:
//
//   - in any span of time, all nodes together admit at most nodes × Lease more than the
//     lender alone would: what they had leased before. Over its whole life no token is
//     spent that the lender did not give;
//   - a node that dies takes with it at most one Lease, and what a request in flight had asked for;
//     a lost reply takes the lease that it carried. Nothing else is lost, except what lapses
//     (below) before it is used;
//   - a node that is cut off admits what is left of its lease, and then says so, with
//     errors that wrap buckets.ErrStore: at once, since a breaker spares most calls the wait.
//
// A lease lapses when the lender would have forgotten it: at the end of a fixed window, when
// a log's entry expires, when a bucket would be full again. So a fixed window is exceeded
// only by requests that wait for the lender while the window ends.
//
// Where less than a lease is left at the lender, nodes take what there is, down to single tokens:
// all of the limit is used. For at most 100 ms a refusal by the lender is repeated for the same key
// without asking again. In decisions that are made locally, Remaining and ResetAfter tell what the
// lender said last; Allowed is exact.
//
// The zero value is not usable; see NewHybrid.
type Hybrid struct {
	lender Lender
	cfg    HybridConfig
	guard  guard
	start  time.Time // of the own clock
	leases leases
}

var _ Lender = (*Hybrid)(nil)

// maxRepeat is how long a refusal is repeated at most.
const maxRepeat = 100 * time.Millisecond

// NewHybrid returns a Hybrid, or an error that names the bad field.
func NewHybrid(lender Lender, cfg HybridConfig) (*Hybrid, error) {
	if usable.Nil(lender) {
		return nil, fmt.Errorf("%w: lender is nil", buckets.ErrParameter)
	}
	if limit := lender.Params().Limit; cfg.Lease < 1 || cfg.Lease > limit {
		return nil, fmt.Errorf("%w: Lease %d: want 1 to %d, the limit", buckets.ErrParameter, cfg.Lease, limit)
	}
	cfg.Deadline = cmp.Or(cfg.Deadline, defaultDeadline)
	cfg.MaxKeys = cmp.Or(cfg.MaxKeys, 100_000)
	if cfg.Deadline < time.Millisecond || cfg.MaxKeys < 1 {
		return nil, fmt.Errorf("%w: Deadline %v, MaxKeys %d: want at least 1ms and 1", buckets.ErrParameter, cfg.Deadline, cfg.MaxKeys)
	}
	return &Hybrid{
		lender: lender, cfg: cfg, guard: guard{deadline: cfg.Deadline}, start: time.Now(),
		leases: leases{most: cfg.MaxKeys, byKey: map[string]*lease{}},
	}, nil
}

// Params returns the lender's parameters.
func (h *Hybrid) Params() buckets.Params { return h.lender.Params() }

func (h *Hybrid) now() int64 {
	if h.cfg.Clock != nil {
		return h.cfg.Clock()
	}
	return time.Since(h.start).Microseconds()
}

// Allow implements buckets.Limiter.
func (h *Hybrid) Allow(ctx context.Context, key string) (buckets.Decision, error) {
	return h.AllowN(ctx, key, 1)
}

// AllowN implements buckets.Limiter. Of several callers for one key, one at a time asks the lender,
// and the others wait for what it brings.
func (h *Hybrid) AllowN(ctx context.Context, key string, n int64) (buckets.Decision, error) {
	switch {
	case n < 0:
		return buckets.Decision{}, fmt.Errorf("%w: %d: want 0 or more", buckets.ErrCost, n)
	case key == "" || len(key) > buckets.MaxKeyLen:
		return buckets.Decision{}, fmt.Errorf("%w: %d bytes long: want 1 to %d", buckets.ErrKey, len(key), buckets.MaxKeyLen)
	case n == 0:
		return h.Peek(ctx, key)
	case n > h.lender.Params().Limit:
		return h.ask(ctx, key, n) // the lender's to refuse
	}
	for {
		l := h.leases.locked(key, h.now())
		d, decided := l.decide(h.now(), n, h.lender.Params().Limit)
		f, first := l.fetching, false
		if !decided && f == nil {
			f, first = l.begin(), true
		}
		l.mu.Unlock()
		switch {
		case decided:
			return d, nil
		case first:
			return h.fetch(ctx, l, f, key, n)
		}
		select {
		case <-f.done:
			if f.err != nil {
				return buckets.Decision{}, f.err
			}
		case <-ctx.Done():
			return buckets.Decision{}, fmt.Errorf("%w: %w", buckets.ErrStore, ctx.Err())
		}
	}
}

// fetch asks the lender for what a request of n lacks, up to a lease, and decides the
// request.
func (h *Hybrid) fetch(ctx context.Context, l *lease, f *fetch, key string, n int64) (buckets.Decision, error) {
	sent := h.now() // a lease lapses counted from here, so early rather than late
	need := n - f.held
	d, took, err := h.borrow(ctx, key, need, max(need, h.cfg.Lease-f.held))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			f.err = err // it applies to those who wait as well
		}
		l.end(f, f.held)
		return buckets.Decision{}, err
	}
	return l.arrived(f, sent, need, took, d), nil
}

// borrow takes want tokens from the lender, or if there are not so many, what there is, but no
// fewer than need. A refusal is the lender's decision about need.
func (h *Hybrid) borrow(ctx context.Context, key string, need, want int64) (buckets.Decision, int64, error) {
	for tries := 0; ; tries++ {
		d, err := h.ask(ctx, key, want)
		if err != nil || d.Allowed || want == need {
			return d, want, err
		}
		want = max(need, min(want-1, d.Remaining))
		if tries == 2 { // others take what we are told is left
			want = need
		}
	}
}

// ask asks the lender, if it is not known to be away.
func (h *Hybrid) ask(ctx context.Context, key string, n int64) (buckets.Decision, error) {
	return h.call(ctx, func(ctx context.Context) (buckets.Decision, error) { return h.lender.AllowN(ctx, key, n) })
}

// call makes a guarded call of the lender. That the caller went away counts as a failure of the
// store as well: that is what a Limiter's errors say.
func (h *Hybrid) call(ctx context.Context, f func(context.Context) (buckets.Decision, error)) (d buckets.Decision, err error) {
	err = h.guard.do(ctx, func(ctx context.Context) (err error) {
		d, err = f(ctx)
		return err
	})
	switch {
	case err == nil, errors.Is(err, buckets.ErrTooLarge):
		return d, err
	case ctx.Err() != nil && !errors.Is(err, buckets.ErrStore):
		err = fmt.Errorf("%w: %w", buckets.ErrStore, err)
	}
	return buckets.Decision{}, err
}

// Peek implements buckets.Limiter: what the lender has left, and this node's lease.
func (h *Hybrid) Peek(ctx context.Context, key string) (buckets.Decision, error) {
	d, err := h.call(ctx, func(ctx context.Context) (buckets.Decision, error) { return h.lender.Peek(ctx, key) })
	if err == nil {
		d.Remaining = min(d.Limit, d.Remaining+h.leases.left(key, h.now()))
	}
	return d, err
}

// Reset implements buckets.Limiter. Other nodes keep what they have leased.
func (h *Hybrid) Reset(ctx context.Context, key string) error {
	h.leases.drop(key)
	_, err := h.call(ctx, func(ctx context.Context) (buckets.Decision, error) {
		return buckets.Decision{}, h.lender.Reset(ctx, key)
	})
	return err
}
