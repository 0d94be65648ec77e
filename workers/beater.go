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

// beatAgain is the pause after a beat that failed. When a store comes back it may have given the
// pool up, and until the next beat nothing is released for it.
const beatAgain = beatEvery / 8

// beater reports that its pool is alive, and extends the leases of what it runs. start and stop own
// its goroutine.
type beater struct {
	pool  *Pool
	quit  chan struct{}
	done  sync.WaitGroup
	every atomic.Int64 // ns from beat to beat
	n     atomic.Int64 // places to report

	heard time.Time // the last beat that Redis answered; the goroutine's own
	lost  bool      // Redis has lost the pool, and Forgotten has not returned nil since; the goroutine's own
}

func newBeater(p *Pool) *beater {
	b := &beater{pool: p, quit: make(chan struct{})}
	b.every.Store(int64(beatEvery))
	b.n.Store(int64(p.cfg.Concurrency))
	return b
}

func (b *beater) pause() time.Duration { return time.Duration(b.every.Load()) }

// follow sets the pace: three beats a lease, by the lease in force.
func (b *beater) follow(ctx context.Context) error {
	begun := time.Now()
	policy, err := b.pool.admin.Downstream(ctx)
	if errors.Is(err, shaper.ErrNotFound) { // the downstream's first pool, or Redis lost everything: the defaults apply
		policy, err = shaper.DownstreamPolicy{}.WithDefaults(), nil
	}
	if err == nil {
		b.pool.gate.Trip.Note(time.Since(begun))
		b.every.Store(int64(min(beatEvery, policy.Lease/3)))
	}
	return err
}

// places changes how many places are reported, and reports them.
func (b *beater) places(n int) {
	b.n.Store(int64(n))
	ctx, cancel := context.WithTimeout(context.Background(), b.pause())
	defer cancel()
	if err := b.once(ctx, n); err != nil {
		b.pool.log.Warn("places could not be reported", "err", err)
	}
}

func (b *beater) start() {
	b.heard = time.Now() // Start has sent a beat
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

// remembers is how long Redis surely knows a pool that it has heard of; it forgets a silent one
// only after a minute, see internal/queue/lua/lib/pick.lua.
const remembers = 30 * time.Second

// again sends a beat that is not the first. If Redis does not know the pool although it should, it
// has lost all its data. That is logged, and policies are set again before the pool beats: until
// then no job is released to it.
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
		b.pool.log.Error("Redis has lost its data: waiting jobs are gone, and so are policies that were set by hand", "running", len(own))
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

// once sends one beat. A job whose lease is lost may be running elsewhere by now, so its context
// ends. A beat that fails ends nothing: while Redis is away nobody else can take the job over, and
// a long transcode is worth waiting for.
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
