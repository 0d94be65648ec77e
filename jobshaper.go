// Package jobshaper puts a queue in front of something fragile, a downstream, and lets jobs leave
// it one at a time, evenly spaced: at 10/s one every 100 ms, never two at once, however many
// producers offer jobs and however many processes run them. Each tenant of a downstream has a
// bounded queue of its own in Redis.
//
//	queue, err := jobshaper.Open(rdb, "transcoder", jobshaper.Config{
//		Tenants: map[string]jobshaper.Policy{"acme": {Rate: jobshaper.PerSecond(10), Depth: 1000}},
//		Handler: mux, // any asynq.Handler
//	})
//	err = queue.Start(ctx) // runs jobs until ctx ends or Stop is called
//	result, err := queue.Enqueue(ctx, "acme", asynq.NewTask("video:transcode", payload))
//
// What a Queue promises:
//
//   - Spacing. Every start of a handler, including retries and starts after a crash, owns a slot of
//     its own on its tenant's timeline, at least 1/rate after the one before, and happens between
//     the slot and a tolerance (20 ms) after it. Idle time earns no credit: there is no burst.
//   - The rate is kept, not only not exceeded: with a backlog and a healthy worker, lateness does
//     not add up.
//   - Accepted means kept. A job that was accepted is run to an end, at least once: it starts again
//     only where its worker died or was cut off, or where Redis lost what it had acknowledged. A
//     handler that must not act twice can tell by the job's ID and its Attempt, see JobFrom.
//   - Refused leaves no trace. A refusal is a value, not an error: Result.Status, with the Reason
//     and with RetryAfter, the least wait after which trying again makes sense. An error means that
//     the input is invalid (ErrInvalid; a *FieldError names the field) or that Redis failed
//     (ErrStore; offer the job again under the same ID).
//   - First in, first out within a tenant; what comes back goes to the front. Tenants do not hurt
//     each other, and share by weight what they share.
//
// A handler returns nil for success. If it returns an error, the job comes back after a backoff,
// until its attempts are used up; if it returns Throttled, the tenant is left alone for a while, at
// no charge; if it returns an error that wraps asynq.SkipRetry, the job is dead at once.
//
// OpenEmbedded gives a Redis to try all this with. docs/architecture.md explains how it works.
package jobshaper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// ErrNotStarted is wrapped by the error of an offer to a Queue that has something to start, but was
// not started: what it accepts might wait for ever.
var ErrNotStarted = errors.New("not started")

// Queue is this process's part in one downstream: it offers jobs to its tenants and, as its Config
// says, runs them. Any number of processes may open the same downstream, and each may do any part
// of the work. It is safe for concurrent use.
type Queue struct {
	downstream string
	client     *shaper.Client
	admin      *shaper.Admin
	holder     *holder           // nil where the Config has no policy
	pool       *workers.Pool     // nil without RoleWorker
	scheduler  *shaper.Scheduler // nil without RoleScheduler
	offers     atomic.Bool       // whether it takes offers

	life    sync.Mutex // held by Start and Stop, guards what follows
	running bool
	stopped bool
	unhook  func() bool        // keeps the end of Start's context from calling Stop
	end     context.CancelFunc // ends the context of what Start started
}

// Open returns a Queue that has not started. It does not talk to Redis. The caller still owns rdb,
// and closes it after Stop; rdb must obey deadlines (ContextTimeoutEnabled). For a Config that
// cannot work, Open returns a *FieldError.
func Open(rdb redis.UniversalClient, downstream string, cfg Config) (*Queue, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	q := &Queue{downstream: downstream}
	var err error
	if q.client, err = shaper.NewClient(rdb, downstream, cfg.Client); err != nil {
		return nil, err
	}
	if q.admin, err = shaper.NewAdmin(rdb, downstream); err != nil {
		return nil, err
	}
	if cfg.policed() {
		q.holder = newHolder(q.admin, downstream, cfg)
	}
	var ring func()
	if cfg.Roles&RoleWorker != 0 {
		if q.pool, err = cfg.pool(rdb, downstream, q.holder); err != nil {
			return nil, err
		}
		ring = q.pool.Ring
	}
	if cfg.Roles&RoleScheduler != 0 {
		dispatcher, err := workers.NewDispatcher(rdb, downstream, ring)
		if err != nil {
			return nil, err
		}
		if q.scheduler, err = cfg.scheduler(rdb, downstream, dispatcher); err != nil {
			return nil, err
		}
	}
	q.offers.Store(q.holder == nil && q.pool == nil && q.scheduler == nil)
	return q, nil
}

// Start applies the Config's policy, begins to run jobs, as far as the Config says so, and returns.
// All that it starts runs until ctx ends or Stop is called; both end it in the order that Stop
// describes, and Stop waits for either. If Start returns an error, nothing runs, and Start may be
// tried again. A Queue that was started or stopped cannot be started.
//
// A Queue with no Handler, no policy and no role has nothing to start, and needs no Start.
func (q *Queue) Start(ctx context.Context) error {
	q.life.Lock()
	defer q.life.Unlock()
	if q.running || q.stopped {
		return fmt.Errorf("queue of %s was started or stopped before", q.downstream)
	}
	// While the Queue starts, the end of ctx ends its calls; once it has started, it begins a Stop.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, end)
	if err := q.start(life); err != nil {
		unhook()
		end()
		return fmt.Errorf("start queue of %s: %w", q.downstream, err)
	}
	unhook()
	q.running, q.end, q.unhook = true, end, context.AfterFunc(ctx, q.Stop)
	q.offers.Store(true)
	return nil
}

// start starts from the bottom up: what runs jobs must find the policy, and a ticket must find a
// worker. If start fails, nothing runs.
func (q *Queue) start(ctx context.Context) error {
	if q.holder != nil {
		if err := q.holder.apply(ctx); err != nil {
			return err
		}
	}
	if q.pool != nil {
		if err := q.pool.Start(ctx); err != nil {
			return err
		}
	}
	if q.scheduler != nil {
		if err := q.scheduler.Start(ctx); err != nil {
			if q.pool != nil {
				q.pool.Stop()
			}
			return err
		}
	}
	if q.holder != nil {
		q.holder.start(ctx)
	}
	return nil
}

// Stop ends what Start started, and waits for it; it may be called twice, or before Start, which
// then fails. In this order:
//
//  1. no more jobs are handed to workers that are about to go
//  2. running jobs may end within Config.Grace; then their contexts end with ErrStopping, and those
//     that have not ended go back to the front of their buckets, uncharged
//
// Jobs may still be offered: they wait in Redis, not here.
func (q *Queue) Stop() {
	q.life.Lock()
	defer q.life.Unlock()
	q.stopped = true
	if !q.running {
		return
	}
	q.running = false
	q.unhook()
	defer q.end()
	if q.holder != nil {
		q.holder.stop()
	}
	if q.scheduler != nil {
		q.scheduler.Stop()
	}
	if q.pool != nil {
		q.pool.Stop()
	}
}

// Downstream names the downstream.
func (q *Queue) Downstream() string { return q.downstream }

// Admin is the operator's view: policies, pauses, counts, dead jobs. It needs no Start. What it
// sets applies at once, to the backlog too.
func (q *Queue) Admin() *Admin { return q.admin }

// mayOffer returns an error where an accepted job might never run.
func (q *Queue) mayOffer() error {
	if q.offers.Load() {
		return nil
	}
	return fmt.Errorf("queue of %s: %w: call Start before offering jobs", q.downstream, ErrNotStarted)
}

// Enqueue offers an asynq task as a job of a tenant. It takes the options that describe the job
// (asynq.TaskID, MaxRetry, Timeout, Retention, ProcessIn, ProcessAt, and MaxWait); for any other it
// returns an error that says why. It returns what Offer returns.
func (q *Queue) Enqueue(ctx context.Context, tenant string, task *asynq.Task, opts ...asynq.Option) (Result, error) {
	if err := q.mayOffer(); err != nil {
		return Result{}, err
	}
	return q.client.Enqueue(ctx, tenant, task, opts...)
}

// Offer offers one job, in one round trip. A refusal is a Result. With the policy Block it waits
// for room until ctx ends. An error that wraps ErrInvalid has changed nothing; after one that wraps
// ErrStore it is unknown whether the job was accepted, and the same job can be offered again with
// the same ID.
func (q *Queue) Offer(ctx context.Context, s Spec) (Result, error) {
	if err := q.mayOffer(); err != nil {
		return Result{}, err
	}
	return q.client.Offer(ctx, s)
}

// OfferMany offers jobs in few round trips, each on its own: one that is invalid or refused hinders
// no other. It returns one Offered per Spec, in order, and never waits for room.
func (q *Queue) OfferMany(ctx context.Context, specs []Spec) []Offered {
	if err := q.mayOffer(); err != nil {
		out := make([]Offered, len(specs))
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	return q.client.OfferMany(ctx, specs)
}

// Find returns what is known of a job; ErrNotFound if nothing is.
func (q *Queue) Find(ctx context.Context, tenant, id string) (Job, error) {
	return q.client.Find(ctx, tenant, id)
}

// Wait returns a job once it has ended, in whatever process; an error if ctx ends first.
func (q *Queue) Wait(ctx context.Context, tenant, id string) (Job, error) {
	return q.client.Wait(ctx, tenant, id)
}

// Cancel ends a job that has not ended, and returns its state now: StateCancelled; StateRunning if
// it runs, and then its handler's context ends with ErrCancelled; or how it had ended before.
func (q *Queue) Cancel(ctx context.Context, tenant, id string) (State, error) {
	return q.client.Cancel(ctx, tenant, id)
}
