package target

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/workers"
)

// pool runs a target's jobs on a Redis of the test's own.
type pool struct {
	t     testing.TB
	queue *jobshaper.Queue
	held  chan struct{} // gets one for each slot that a start is granted, before it is made ready
	ahead atomic.Int64  // starts that have been granted and have not returned
}

// newPool starts a pool whose tenants start jobs at a rate. A lead that is long leaves time to look at
// a start that is ready.
func newPool(t testing.TB, h asynq.Handler, rate int64, lead time.Duration) *pool {
	t.Helper()
	p := &pool{t: t, held: make(chan struct{}, 1000)}
	if prepared, ok := h.(workers.Preparer); ok {
		h = &watched{prepared, p}
	}
	server := redistest.Start(t)
	var err error
	p.queue, err = jobshaper.Open(server.Client(), "d", jobshaper.Config{
		Policy: jobshaper.DownstreamPolicy{Lead: lead, DepartureLog: 10_000, Defaults: jobshaper.Policy{
			Rate: jobshaper.PerSecond(rate), Depth: 1000, Retention: time.Hour, Backoff: jobshaper.Backoff{Min: time.Millisecond, Max: time.Millisecond}}},
		Handler: h, Concurrency: 10, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	p.must(err)
	p.must(p.queue.Start(t.Context()))
	t.Cleanup(p.queue.Stop)
	return p
}

func (p *pool) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// offer offers n jobs of tenant a.
func (p *pool) offer(n int) (ids []string) {
	p.t.Helper()
	for range n {
		r, err := p.queue.Enqueue(p.t.Context(), "a", asynq.NewTask("x", []byte("{}")), asynq.Retention(time.Hour))
		p.must(err)
		if r.Status != jobshaper.Accepted {
			p.t.Fatalf("%+v, want accepted", r)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

// done waits until a job has ended well.
func (p *pool) done(id string) jobshaper.Job {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), testenv.Patience)
	defer cancel()
	job, err := p.queue.Wait(ctx, "a", id)
	if err != nil || job.State != jobshaper.StateDone {
		p.t.Fatalf("%+v, %v; want it done", job, err)
	}
	return job
}

// granted waits for a start to be granted its slot.
func (p *pool) granted() {
	p.t.Helper()
	select {
	case <-p.held:
	case <-time.After(testenv.Patience):
		p.t.Fatal("no start was granted a slot")
	}
}

// watched tells its pool of grants.
type watched struct {
	workers.Preparer
	pool *pool
}

func (w *watched) NewPlace() workers.Place { return &watchedPlace{w.Preparer.NewPlace(), w.pool} }

type watchedPlace struct {
	workers.Place
	pool *pool
}

func (w *watchedPlace) Start(ctx context.Context, task *asynq.Task, slot *workers.Slot) error {
	w.pool.ahead.Add(1)
	defer w.pool.ahead.Add(-1)
	w.pool.held <- struct{}{}
	return w.Place.Start(ctx, task, slot)
}

// eventuallyTrue waits for a condition.
func eventuallyTrue(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for begun := time.Now(); !condition(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > testenv.Patience {
			t.Fatalf("%s: not after %v", what, testenv.Patience)
		}
	}
}

// callOffs are the ways in which a start that is ready is called off.
var callOffs = map[string]func(p *pool, id string){
	"pause": func(p *pool, _ string) {
		p.must(p.queue.Admin().Pause(p.t.Context(), "a", time.Hour))
	},
	"cancel": func(p *pool, id string) {
		_, err := p.queue.Cancel(p.t.Context(), "a", id)
		p.must(err)
	},
	"stop": func(p *pool, _ string) { p.queue.Stop() },
}
