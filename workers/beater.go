package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/shaper"
)

// beatEvery is the longest pause between two beats; a pool that misses three counts as gone.
const beatEvery = 2 * time.Second

// beatAgain is the pause after a beat that failed. When a store comes back the pool may have been
// given up, and until the next beat nothing is released for it.
const beatAgain = beatEvery / 8

// beater says that its pool lives, and extends the leases of what it runs. start and stop own its
// goroutine.
type beater struct {
	pool  *Pool
	quit  chan struct{}
	done  sync.WaitGroup
	every atomic.Int64 // ns from beat to beat
	n     atomic.Int64 // places to report

	heard time.Time // the last beat that Redis answered; of the goroutine
	lost  bool      // Redis has lost the pool, and Forgotten has not returned nil since; of the goroutine
}

func newBeater(p *Pool) *beater {
	b := &beater{pool: p, quit: make(chan struct{})}
	b.every.Store(int64(beatEvery))
	b.n.Store(int64(p.cfg.Concurrency))
	return b
}

func (b *beater) pause() time.Duration { return time.Duration(b.every.Load()) }

// follow beats three times a lease, as long as a lease is now.
func (b *beater) follow(ctx context.Context) error {
	policy, err := b.pool.admin.Downstream(ctx)
	if errors.Is(err, shaper.ErrNotFound) { // its first pool, or Redis lost all: what applies is the default
		policy, err = shaper.DownstreamPolicy{}.WithDefaults(), nil
	}
	if err == nil {
		b.every.Store(int64(min(beatEvery, policy.Lease/3)))
	}
	return err
}

// places changes how many places are reported, and reports it.
func (b *beater) places(n int) {
	b.n.Store(int64(n))
	ctx, cancel := context.WithTimeout(context.Background(), b.pause())
	defer cancel()
	if err := b.once(ctx, n); err != nil {
		b.pool.log.Warn("places could not be reported", "err", err)
	}
}

func (b *beater) start() {
	b.heard = time.Now() // Start has beaten
	b.done.Go(func() {
		failing := false
		for {
			pause := b.pause()
			if failing {
				pause = min(pause, beatAgain)
			}
			select {
			case <-b.quit:
				return
			case <-time.After(pause):
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*b.pause())
			err := b.follow(ctx)
			if err == nil {
				err = b.again(ctx)
			}
			cancel()
			if err != nil && !failing {
				b.pool.log.Error("leases could not be extended, trying again", "err", err)
			}
			failing = err != nil
		}
	})
}

func (b *beater) stop() {
	close(b.quit)
	b.done.Wait()
}

// remembers is for how long Redis surely knows a pool that it has heard of; it forgets one in
// silence only after a minute, see internal/queue/lua/lib/pick.lua.
const remembers = 30 * time.Second

// again beats, not for the first time. Where Redis does not know the pool although it should, it
// has lost all that it had. That is made known, and policies are set again before the pool beats:
// until then no job is released to it.
func (b *beater) again(ctx context.Context) error {
	places := int(b.n.Load())
	if !b.lost && time.Since(b.heard) < remembers {
		own := b.pool.own()
		standings, known, err := b.pool.gate.BeatAgain(ctx, b.pool.id, places, 3*b.pause(), own)
		b.tell(own, standings)
		if err == nil && known {
			b.heard = time.Now()
		}
		if err != nil || known {
			return err
		}
		b.lost = true
		b.pool.cfg.Metrics.forgot()
		b.pool.log.Error("Redis has lost its data: jobs that waited are gone, and policies that were set by hand", "running", len(own))
	}
	if b.lost && b.pool.cfg.Forgotten != nil {
		if err := b.pool.cfg.Forgotten(ctx); err != nil {
			return fmt.Errorf("set policies again: %w", err)
		}
	}
	b.lost = false
	err := b.once(ctx, places)
	if err == nil {
		b.heard = time.Now()
	}
	return err
}

// once beats once. A job whose lease is lost may be running elsewhere by now, so its context ends.
// A beat that fails ends nothing: while Redis is away nobody else can take the job over, and a long
// transcode is worth waiting.
func (b *beater) once(ctx context.Context, places int) error {
	own := b.pool.own()
	standings, err := b.pool.gate.Beat(ctx, b.pool.id, places, 3*b.pause(), own)
	b.tell(own, standings)
	return err
}

// tell tells starts what became of their leases.
func (b *beater) tell(own []queue.Held, standings []queue.Standing) {
	for i, s := range standings {
		switch s {
		case queue.Lost:
			b.pool.lost(own[i].Grant)
		case queue.Cancelled:
			b.pool.ended(own[i].Token, shaper.ErrCancelled)
		}
	}
}
