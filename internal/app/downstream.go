package app

import (
	"context"

	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// startDownstream applies a downstream's policies and starts its pool and its scheduler, as the roles say.
func (d *daemon) startDownstream(ctx context.Context, ds Downstream) error {
	c, err := d.configure(ctx, ds)
	if err != nil {
		return err
	}
	d.configs = append(d.configs, c)
	var ring func()
	if d.cfg.Roles.Worker {
		pool, err := d.startPool(ctx, c)
		if err != nil {
			return err
		}
		ring = pool.Ring
	}
	if !d.cfg.Roles.Scheduler {
		return nil
	}
	dispatcher, err := workers.NewDispatcher(d.store.Client, ds.Name, ring)
	if err != nil {
		return err
	}
	s, err := shaper.NewScheduler(d.store.Client, ds.Name, dispatcher, shaper.SchedulerConfig{Logger: d.log})
	if err != nil {
		return err
	}
	// Not ctx: stop ends it, in its turn.
	if err := s.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	d.schedulers = append(d.schedulers, s)
	return nil
}

func (d *daemon) startPool(ctx context.Context, c *configured) (*workers.Pool, error) {
	ds := c.ds
	metrics, err := workers.NewMetrics(d.registry, ds.Name)
	if err != nil {
		return nil, err
	}
	pool, err := workers.New(d.store.Client, ds.Name, ds.Handler, workers.Config{
		Concurrency: ds.Concurrency, Grace: d.cfg.Grace, Logger: d.log, Metrics: metrics,
		Forgotten: c.apply,
	})
	if err != nil {
		return nil, err
	}
	if err := pool.Start(ctx); err != nil {
		return nil, err
	}
	d.pools = append(d.pools, pool)
	return pool, nil
}

// poolSize is how many connections to Redis the daemon may need at once: one for each place, and some for schedulers,
// listeners and requests.
func (d *daemon) poolSize() int {
	n := 16
	for _, ds := range d.cfg.Downstreams {
		n += 8 + max(ds.Concurrency, 10)
	}
	return min(n, 1000)
}
