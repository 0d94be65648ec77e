package jobshaper

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/usable"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// Config is set once for a Queue. The zero Config is a producer: it offers jobs that others run.
type Config struct {
	// Policy and Tenants are the downstream's configuration, like a daemon's file: Start applies it
	// as a whole, with defaults for fields that are not set. What has left the configuration since
	// it was last applied goes back to the defaults; a configuration that has not changed leaves
	// alone what was set by hand since. If Redis loses it, it is applied again. All processes that
	// give one should give the same: that of the last one started is in force, and both sides log
	// that they differ.
	//
	// If Policy is zero and Tenants is nil, what is set stays as it is.
	Policy  DownstreamPolicy
	Tenants map[string]Policy

	Handler     asynq.Handler // runs the jobs; may be a ServeMux with middleware; nil = no job runs here
	Roles       Role          // what this process does; default: all if there is a Handler, else nothing
	Concurrency int           // places: how many jobs run at a time in this process; default 10

	// These four are asynq's own, so that they can be copied from an asynq.Config; see
	// workers.Config.
	BaseContext    func() context.Context // a handler's context has its values, and ends with it
	ErrorHandler   asynq.ErrorHandler     // is called with each error that a handler returns
	IsFailure      func(error) bool       // whether an error costs an attempt; default: all do
	RetryDelayFunc asynq.RetryDelayFunc   // how long a job waits after an error; default: the policy's backoff

	Grace     time.Duration // how long Stop lets running jobs go on; default 30s
	KillGrace time.Duration // how long Stop waits for them after it has ended their contexts; default 5s
	TicketTTL time.Duration // how long a released job may be on its way to a worker before it is released again; default 2s

	Client  ClientConfig          // how jobs are offered
	Logger  *slog.Logger          // default slog.Default()
	Metrics prometheus.Registerer // Open registers what workers and schedulers count there; default: none
}

// Role is a part of the work on a downstream. Roles can be joined: RoleScheduler | RoleWorker.
type Role uint8

const (
	RoleScheduler Role = 1 << iota // releases the jobs of each bucket when their time has come
	RoleWorker                     // runs them; needs a Handler
)

// fill fills in defaults, and returns a *FieldError for what cannot be used and nothing else
// checks.
func (c *Config) fill() error {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Roles == 0 && c.Handler != nil {
		c.Roles = RoleScheduler | RoleWorker
	}
	if c.Roles&^(RoleScheduler|RoleWorker) != 0 {
		return &FieldError{Field: "roles", Value: fmt.Sprint(c.Roles), Want: "RoleScheduler, RoleWorker or both"}
	}
	if err := c.Policy.Validate(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		if err := shaper.ValidName("tenant", name); err != nil {
			return err
		}
		if err := c.Tenants[name].Validate(); err != nil {
			return fmt.Errorf("tenant %s: %w", name, err)
		}
	}
	return nil
}

// policed reports whether the Config has a policy.
func (c *Config) policed() bool {
	return c.Tenants != nil || !reflect.ValueOf(c.Policy).IsZero()
}

// pool makes the workers. h may be nil.
func (c *Config) pool(rdb redis.UniversalClient, downstream string, h *holder) (*workers.Pool, error) {
	cfg := workers.Config{Concurrency: c.Concurrency, Grace: c.Grace, KillGrace: c.KillGrace, Logger: c.Logger,
		BaseContext: c.BaseContext, ErrorHandler: c.ErrorHandler, IsFailure: c.IsFailure, RetryDelayFunc: c.RetryDelayFunc}
	if h != nil {
		cfg.Forgotten = h.apply
	}
	if !usable.Nil(c.Metrics) {
		var err error
		if cfg.Metrics, err = workers.NewMetrics(c.Metrics, downstream); err != nil {
			return nil, err
		}
	}
	return workers.New(rdb, downstream, c.Handler, cfg)
}

func (c *Config) scheduler(rdb redis.UniversalClient, downstream string, d shaper.Dispatcher) (*shaper.Scheduler, error) {
	cfg := shaper.SchedulerConfig{TicketTTL: c.TicketTTL, Logger: c.Logger}
	if !usable.Nil(c.Metrics) {
		labels := prometheus.Labels{"downstream": downstream}
		mended := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shaper_books_mended_total", ConstLabels: labels,
			Help: "Faults of the books that a scheduler of this process found and mended."}, []string{"kind"})
		gauge := func(name, help string) prometheus.Gauge {
			return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, ConstLabels: labels, Help: help})
		}
		waiting := gauge("shaper_tickets_waiting", "Tickets in asynq's queue that no worker has taken.")
		stuck := gauge("shaper_tickets_stuck", "1 while no tickets are released, since they do not reach workers: asynq's queue is paused, or too many wait in it.")
		strangers := gauge("shaper_foreign_servers", "asynq servers that take tickets of this downstream, and are none of its pools. Jobs wait for what they take.")
		for _, metric := range []prometheus.Collector{mended, waiting, stuck, strangers} {
			if err := c.Metrics.Register(metric); err != nil {
				return nil, err
			}
		}
		cfg.OnMended = func(faults []shaper.BookFault) {
			for _, f := range faults {
				mended.WithLabelValues(f.Kind).Add(float64(f.Count))
			}
		}
		cfg.OnBacklog = func(b shaper.Backlog) {
			waiting.Set(float64(b.Tickets))
			stuck.Set(0)
			if b.Why() != "" {
				stuck.Set(1)
			}
			strangers.Set(float64(len(b.Strangers)))
		}
	}
	return shaper.NewScheduler(rdb, downstream, d, cfg)
}
