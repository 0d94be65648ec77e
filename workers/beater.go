package workers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobshaper/jobshaper/shaper"
)

// beatEvery is the longest pause between two beats; a pool that misses three counts as gone.
const beatEvery = 2 * time.Second

// beatAgain is the pause after a beat that failed. When a store comes back the pool may have been given up, and until the next beat
// nothing is released for it.
const beatAgain = beatEvery / 8

// beater says that its pool lives, and extends the leases of what it runs. start and stop own its goroutine.
type beater struct {
	pool  *Pool
	quit  chan struct{}
	done  sync.WaitGroup
	lost  bool         // Redis had lost the pool, and Forgotten has not returned nil since; of the goroutine
	every atomic.Int64 // ns from beat to beat
	n     atomic.Int64 // places to report
}

func newBeater(p *Pool) *beater {
	b := &beater{pool: p, quit: make(chan struct{})}
	b.every.Store(int64(beatEvery))
	b.n.Store(int64(p.cfg.Concurrency))
	return b
}

func (b *beater) pause() time.Duration { return time.Duration(b.every.Load()) }

// follow beats three times a lease, as long as a lease is now. known tells whether Redis knows the pool.
func (b *beater) follow(ctx context.Context) (known bool, err error) {
	policy, known, err := b.pool.gate.Look(ctx, b.pool.id)
	if err == nil {
		b.every.Store(int64(min(beatEvery, policy.Lease/3)))
	}
	return known, err
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
	b.done.Add(1)
	go func() {
		defer b.done.Done()
		failing := false
		heard := time.Now() // the last beat that Redis answered; start follows one
		for {
			pause := b.pause()
			if failing {
				pause = min(pause, beatAgain)
			}
			t := time.NewTimer(pause)
			select {
			case <-b.quit:
				t.Stop()
				return
			case <-t.C:
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*b.pause())
			known, err := b.follow(ctx)
			if err == nil && (b.lost || !known && time.Since(heard) < remembers) {
				err = b.recover(ctx)
			}
			if err == nil {
				err = b.once(ctx, int(b.n.Load()))
			}
			cancel()
			if err == nil {
				heard = time.Now()
			}
			if err != nil && !failing {
				b.pool.log.Error("leases could not be extended, trying again", "err", err)
			}
			failing = err != nil
		}
	}()
}

func (b *beater) stop() {
	close(b.quit)
	b.done.Wait()
}

// remembers is for how long Redis surely knows a pool that it has heard of, unless it loses its data; it forgets one in silence only
// after a minute, see lua/pick.lua.
const remembers = 30 * time.Second

// recover makes known that Redis has lost what it had, as this pool's missing entry shows, and has the policies set again. That comes
// before the next beat: until then no job is released to this pool.
func (b *beater) recover(ctx context.Context) error {
	if !b.lost {
		b.lost = true
		b.pool.cfg.Metrics.forgot()
		b.pool.log.Error("Redis has lost its data: jobs that waited are gone, and policies that were set by hand", "running", len(b.pool.own()))
	}
	if b.pool.cfg.Forgotten != nil {
		if err := b.pool.cfg.Forgotten(ctx); err != nil {
			return fmt.Errorf("set policies again: %w", err)
		}
	}
	b.lost = false
	return nil
}

// once beats once. A job whose lease is lost may be running elsewhere by now, so its context ends. A beat that fails ends
// nothing: while Redis is away nobody else can take the job over, and a long transcode is worth waiting.
func (b *beater) once(ctx context.Context, places int) error {
	own := b.pool.own()
	standings, err := b.pool.gate.Beat(ctx, b.pool.id, places, 3*b.pause(), own)
	for i, s := range standings {
		switch s {
		case shaper.Lost:
			b.pool.lost(own[i])
		case shaper.Cancelled:
			b.pool.ended(own[i].Token, shaper.ErrCancelled)
		}
	}
	return err
}
