package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/internal/again"
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
	for told := false; ; told = true {
		var unreadable *shaper.UnreadableError
		if err := q.Start(ctx); !errors.As(err, &unreadable) {
			return err
		}
		if !told {
			d.log.Error("this daemon cannot serve the downstream, and waits until it can", "downstream", ds.Name, "err", unreadable)
		}
		if !again.Sleep(ctx, time.Second) {
			return ctx.Err()
		}
	}
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
