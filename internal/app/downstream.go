package app

import (
	"context"
	"fmt"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/internal/config"
	"github.com/jobshaper/jobshaper/shaper"
)

// startDownstream applies a downstream's policy and starts the parts that the roles name.
func (d *daemon) startDownstream(ctx context.Context, ds config.Downstream) error {
	cfg := ds.Config
	cfg.Grace, cfg.Logger, cfg.Metrics, cfg.Roles = d.cfg.Grace, d.log, d.registry, 0
	if d.cfg.Roles.Scheduler {
		cfg.Roles |= jobshaper.RoleScheduler
	}
	if d.cfg.Roles.Worker {
		cfg.Roles |= jobshaper.RoleWorker
	} else {
		cfg.Handler = nil
	}
	if cfg.Tenants == nil { // what a daemon is started with is applied, even if it is nothing
		cfg.Tenants = map[string]shaper.Policy{}
	}
	q, err := jobshaper.Open(d.store.Client, ds.Name, cfg)
	if err != nil {
		return fmt.Errorf("downstream %s: %w", ds.Name, err)
	}
	d.queues = append(d.queues, q)
	return q.Start(ctx)
}

// poolSize is how many connections to Redis the daemon may need at once: one for each place, and
// some for schedulers, listeners and requests.
func (d *daemon) poolSize() int {
	n := 16
	for _, ds := range d.cfg.Downstreams {
		n += 8 + max(ds.Concurrency, 10)
	}
	return min(n, 1000)
}
