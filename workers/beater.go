package workers

import (
	"context"
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
	admin *shaper.Admin
	quit  chan struct{}
	done  sync.WaitGroup
	every atomic.Int64 // ns from beat to beat
	n     atomic.Int64 // places to report
}

func newBeater(p *Pool) (*beater, error) {
	admin, err := shaper.NewAdmin(p.rdb, p.downstream)
	if err != nil {
		return nil, err
	}
	b := &beater{pool: p, admin: admin, quit: make(chan struct{})}
	b.every.Store(int64(beatEvery))
	b.n.Store(int64(p.cfg.Concurrency))
	return b, nil
}

func (b *beater) pause() time.Duration { return time.Duration(b.every.Load()) }

// follow beats three times a lease, as long as a lease is now.
func (b *beater) follow(ctx context.Context) error {
	policy, err := b.admin.Downstream(ctx)
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
	b.done.Add(1)
	go func() {
		defer b.done.Done()
		failing := false
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
			err := b.follow(ctx)
			if err == nil {
				err = b.once(ctx, int(b.n.Load()))
			}
			cancel()
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
