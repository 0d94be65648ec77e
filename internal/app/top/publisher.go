package top

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/shaper"
)

// Publisher publishes what the Hitters of this process say. Start it once; Stop may be called at
// any time, and twice.
type Publisher struct {
	client  redis.UniversalClient
	process string
	log     *slog.Logger
	hitters map[string]*policing.Hitters // by downstream

	cancel context.CancelFunc
	loop   sync.WaitGroup
}

// NewPublisher makes Hitters for each downstream. The client is the caller's.
func NewPublisher(client redis.UniversalClient, downstreams []string, log *slog.Logger) (*Publisher, error) {
	p := &Publisher{client: client, process: shaper.NewID(), log: log, hitters: map[string]*policing.Hitters{}, cancel: func() {}}
	for _, name := range downstreams {
		h, err := policing.NewHitters(policing.HittersConfig{})
		if err != nil {
			return nil, err
		}
		p.hitters[name] = h
	}
	return p, nil
}

// Hitters returns the Hitters of a downstream; nil if NewPublisher was not given its name.
func (p *Publisher) Hitters(downstream string) *policing.Hitters { return p.hitters[downstream] }

// Start publishes every Interval until ctx ends or Stop is called.
func (p *Publisher) Start(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.loop.Go(func() {
		tick := time.NewTicker(Interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.publish(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
}

// Stop ends the publishing and removes the snapshots, as far as Redis lets it: what remains expires
// by itself.
func (p *Publisher) Stop() {
	p.cancel()
	p.loop.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for name := range p.hitters {
		_, _ = p.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.SRem(ctx, indexKey(name), p.process)
			pipe.Del(ctx, snapshotKey(name, p.process))
			return nil
		})
	}
}

// publish writes a snapshot for each downstream that has counts. A failure goes to the log only:
// the next snapshot will do.
func (p *Publisher) publish(ctx context.Context) {
	for name, h := range p.hitters {
		s := snapshot(h)
		if s.Offers.All == 0 {
			continue
		}
		text, err := json.Marshal(s)
		if err != nil { // it is made of strings and numbers
			panic(err)
		}
		_, err = p.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.SAdd(ctx, indexKey(name), p.process)
			pipe.Expire(ctx, indexKey(name), 2*fresh)
			pipe.Set(ctx, snapshotKey(name, p.process), text, fresh)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			p.log.Debug("heavy hitters were not published", "downstream", name, "err", err)
		}
	}
}
