package jobshaper

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

var succeed = asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })

// open opens a queue that logs where the test does.
func open(t *testing.T, rdb redis.UniversalClient, cfg Config) *Queue {
	t.Helper()
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	q, err := Open(rdb, "d", cfg)
	must(t, err)
	t.Cleanup(q.Stop)
	return q
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits until a condition holds.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for begun := time.Now(); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > testenv.Patience {
			t.Fatalf("%s: not within %v", what, testenv.Patience)
		}
	}
}

// depth is the downstream's default depth that is in force; 0 if the downstream is unknown.
func depth(q *Queue) int {
	p, err := q.Admin().Downstream(context.Background())
	if err != nil {
		return 0
	}
	return p.Defaults.Depth
}

// pools counts the live pools of workers.
func pools(rdb redis.UniversalClient) int64 {
	return rdb.HLen(context.Background(), "shaper:{d}:pools").Val()
}

func ofDepth(n int) DownstreamPolicy { return DownstreamPolicy{Defaults: Policy{Depth: n}} }

// TestOpenRefuses: what cannot work is an error that names the field, before Redis is asked
// anything.
func TestOpenRefuses(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer rdb.Close()
	deaf := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer deaf.Close()
	var nilHandler *asynq.ServeMux
	for _, row := range []struct {
		field string
		rdb   redis.UniversalClient
		name  string
		cfg   Config
	}{
		{"redis", nil, "d", Config{}},
		{"redis", (*redis.Client)(nil), "d", Config{}},
		{"redis", deaf, "d", Config{}},
		{"downstream", rdb, "a}b", Config{}},
		{"handler", rdb, "d", Config{Handler: nilHandler}},
		{"handler", rdb, "d", Config{Roles: RoleWorker}},
		{"roles", rdb, "d", Config{Roles: 1 << 5}},
		{"concurrency", rdb, "d", Config{Handler: succeed, Concurrency: -1}},
		{"grace", rdb, "d", Config{Handler: succeed, Grace: -1}},
		{"kill_grace", rdb, "d", Config{Handler: succeed, KillGrace: -1}},
		{"ticket_ttl", rdb, "d", Config{Handler: succeed, TicketTTL: -1}},
		{"depth", rdb, "d", Config{Policy: ofDepth(-1)}},
		{"tenant", rdb, "d", Config{Tenants: map[string]Policy{"a b": {}}}},
		{"weight", rdb, "d", Config{Tenants: map[string]Policy{"a": {Weight: -1}}}},
		{"max_payload", rdb, "d", Config{Client: ClientConfig{MaxPayload: -1}}},
	} {
		_, err := Open(row.rdb, row.name, row.cfg)
		var fe *FieldError
		if !errors.As(err, &fe) || fe.Field != row.field || !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v, want an error about %s", row.cfg, err, row.field)
		}
	}
}

// TestOffersWantAStart: what would be accepted and never run is refused with an error, and leaves
// no trace. A queue with nothing to start needs no start.
func TestOffersWantAStart(t *testing.T) {
	rdb := redistest.Open(t)
	ctx := t.Context()
	for name, cfg := range map[string]Config{
		"workers": {Handler: succeed}, "a policy": {Policy: ofDepth(7)}, "a scheduler": {Roles: RoleScheduler},
	} {
		q := open(t, rdb, cfg)
		_, enqueue := q.Enqueue(ctx, "a", asynq.NewTask("x", nil))
		_, offer := q.Offer(ctx, Spec{Type: "x"})
		many := q.OfferMany(ctx, make([]Spec, 2))
		for _, err := range []error{enqueue, offer, many[0].Err, many[1].Err} {
			if !errors.Is(err, ErrNotStarted) {
				t.Errorf("%s: %v, want %v", name, err, ErrNotStarted)
			}
		}
	}
	if n := rdb.DBSize(ctx).Val(); n != 0 {
		t.Errorf("%d keys, want none", n)
	}
	producer := open(t, rdb, Config{})
	if r, err := producer.Enqueue(ctx, "a", asynq.NewTask("x", nil)); err != nil || r.Status != Accepted {
		t.Errorf("a producer: %+v, %v", r, err)
	}
	must(t, producer.Start(ctx)) // and it may be started
}

// TestRoles: workers in one queue and the scheduler in another, as in two processes, run a job; and
// only workers are a pool.
func TestRoles(t *testing.T) {
	rdb := redistest.Open(t)
	ctx := t.Context()
	registry := prometheus.NewRegistry()
	scheduler := open(t, rdb, Config{Handler: succeed, Roles: RoleScheduler})
	must(t, scheduler.Start(ctx))
	if n := pools(rdb); n != 0 {
		t.Errorf("%d pools of a scheduler, want none", n)
	}
	worker := open(t, rdb, Config{Handler: succeed, Roles: RoleWorker, Metrics: registry})
	must(t, worker.Start(ctx))
	r, err := scheduler.Enqueue(ctx, "a", asynq.NewTask("x", nil))
	must(t, err)
	if job, err := worker.Wait(ctx, "a", r.ID); err != nil || job.State != StateDone {
		t.Errorf("%+v, %v, want it done", job, err)
	}
	if families, err := registry.Gather(); err != nil || len(families) == 0 {
		t.Errorf("%d metrics, %v", len(families), err)
	}
}

// TestPolicyHolds: a queue with a policy applies it as a whole, one without leaves what is set, and
// the same policy again leaves what was set by hand.
func TestPolicyHolds(t *testing.T) {
	rdb := redistest.Open(t)
	started := func(cfg Config) *Queue {
		q := open(t, rdb, cfg)
		must(t, q.Start(t.Context()))
		q.Stop()
		return q
	}
	q := started(Config{Policy: ofDepth(7), Tenants: map[string]Policy{"a": {Depth: 3}}})
	started(Config{})
	if d := depth(q); d != 7 {
		t.Errorf("depth %d after a start without a policy, want 7", d)
	}
	must(t, q.Admin().SetDownstream(t.Context(), ofDepth(8)))
	started(Config{Policy: ofDepth(7), Tenants: map[string]Policy{"a": {Depth: 3}}})
	if d := depth(q); d != 8 {
		t.Errorf("depth %d after a start with the same policy, want the 8 that was set by hand", d)
	}
	started(Config{Tenants: map[string]Policy{}})
	if d := depth(q); d != 1000 {
		t.Errorf("depth %d after a start with an empty policy, want the default", d)
	}
	if a, err := q.Admin().Tenant(t.Context(), "a"); err != nil || a.Effective.Depth != 1000 {
		t.Errorf("tenant a, which left: depth %d, %v, want the default", a.Effective.Depth, err)
	}
}

// TestPolicyComesBack: if Redis loses all that it had, the policy is applied again, without workers
// too; and a map that its owner changes afterwards changes nothing.
func TestPolicyComesBack(t *testing.T) {
	for name, handler := range map[string]asynq.Handler{"workers": succeed, "a producer": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client()
			tenants := map[string]Policy{"a": {Depth: 3}}
			q := open(t, rdb, Config{Policy: ofDepth(7), Tenants: tenants, Handler: handler})
			must(t, q.Start(t.Context()))
			tenants["a"] = Policy{Depth: 4}
			must(t, rdb.FlushAll(t.Context()).Err())
			until(t, "the policy holds again", func() bool { return depth(q) == 7 })
			if a, err := q.Admin().Tenant(t.Context(), "a"); err != nil || a.Effective.Depth != 3 {
				t.Errorf("tenant a: depth %d, %v, want 3", a.Effective.Depth, err)
			}
		})
	}
}

// TestTheEndOfTheContextIsAStop: all that Start started ends in good order though nobody calls
// Stop, and jobs may still be offered.
func TestTheEndOfTheContextIsAStop(t *testing.T) {
	rdb := redistest.Open(t)
	running, release := make(chan context.Context), make(chan struct{})
	q := open(t, rdb, Config{Policy: ofDepth(7), Grace: testenv.Patience, Handler: asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		running <- ctx
		<-release
		return ctx.Err()
	})})
	ctx, cancel := context.WithCancel(t.Context())
	must(t, q.Start(ctx))
	runs, err := q.Enqueue(ctx, "a", asynq.NewTask("x", nil))
	must(t, err)
	handler := <-running
	cancel()
	until(t, "a Stop has begun", func() bool {
		stats, err := q.Admin().Stats(context.Background(), false)
		return err == nil && stats.Places == 0
	})
	waits, err := q.Enqueue(t.Context(), "a", asynq.NewTask("x", nil))
	must(t, err)
	if handler.Err() != nil {
		t.Errorf("the running handler was told: %v", context.Cause(handler))
	}
	close(release)
	until(t, "the pool is gone", func() bool { return pools(rdb) == 0 })
	q.Stop()
	for id, want := range map[string]State{runs.ID: StateDone, waits.ID: StateWaiting} {
		if job, err := q.Find(t.Context(), "a", id); err != nil || job.State != want {
			t.Errorf("%+v, %v, want %s", job, err, want)
		}
	}
}

// TestStartAndStop: once each, in whatever order.
func TestStartAndStop(t *testing.T) {
	rdb := redistest.Open(t)
	q := open(t, rdb, Config{Handler: succeed})
	q.Stop()
	if q.Start(t.Context()) == nil {
		t.Error("it was started after Stop")
	}
	q = open(t, rdb, Config{Handler: succeed})
	must(t, q.Start(t.Context()))
	if q.Start(t.Context()) == nil {
		t.Error("it was started twice")
	}
	q.Stop()
	q.Stop()
	if n := pools(rdb); n != 0 {
		t.Errorf("%d pools after Stop, want none", n)
	}
}

// TestStartWithoutRedis: nothing runs, and the same queue starts once Redis is there.
func TestStartWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	q := open(t, server.Client(), Config{Policy: ofDepth(7), Handler: succeed})
	server.Kill()
	if err := q.Start(t.Context()); !errors.Is(err, ErrStore) {
		t.Fatalf("without Redis: %v, want %v", err, ErrStore)
	}
	if _, err := q.Offer(t.Context(), Spec{Type: "x"}); !errors.Is(err, ErrNotStarted) {
		t.Errorf("an offer: %v, want %v", err, ErrNotStarted)
	}
	server.Restart()
	must(t, q.Start(t.Context()))
	r, err := q.Enqueue(t.Context(), "a", asynq.NewTask("x", nil))
	must(t, err)
	if job, err := q.Wait(t.Context(), "a", r.ID); err != nil || job.State != StateDone {
		t.Errorf("%+v, %v, want it done", job, err)
	}
}

// TestCancel ends the context of a handler that runs.
func TestCancel(t *testing.T) {
	var told atomic.Value
	running := make(chan struct{})
	q := open(t, redistest.Open(t), Config{Handler: asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		close(running)
		<-ctx.Done()
		told.Store(context.Cause(ctx))
		return ctx.Err()
	})})
	must(t, q.Start(t.Context()))
	r, err := q.Enqueue(t.Context(), "a", asynq.NewTask("x", nil))
	must(t, err)
	<-running
	if state, err := q.Cancel(t.Context(), "a", r.ID); err != nil || state != StateRunning {
		t.Errorf("cancel: %s, %v, want %s", state, err, StateRunning)
	}
	job, err := q.Wait(t.Context(), "a", r.ID)
	if err != nil || job.State != StateCancelled || told.Load() != ErrCancelled {
		t.Errorf("%+v, %v, told %v; want it cancelled, and told so", job, err, told.Load())
	}
}

// TestEmbedded: a store keeps what was accepted for the next one in its directory, and one without
// a directory leaves none.
func TestEmbedded(t *testing.T) {
	testenv.Need(t, "redis")
	temp, dir := t.TempDir(), filepath.Join(t.TempDir(), "data")
	t.Setenv("TMPDIR", temp)
	ctx := t.Context()
	offered := ""
	for _, want := range []State{StateWaiting, StateWaiting} {
		e, err := OpenEmbedded(ctx, dir)
		must(t, err)
		if !e.Durable() {
			t.Errorf("%v does not say that it is durable", e)
		}
		if _, err := OpenEmbedded(ctx, dir); err == nil {
			t.Error("it has two owners")
		}
		q := open(t, e.Client(), Config{})
		if offered == "" {
			r, err := q.Offer(ctx, Spec{Tenant: "a", Type: "x"})
			must(t, err)
			offered = r.ID
		}
		if job, err := q.Find(ctx, "a", offered); err != nil || job.State != want {
			t.Errorf("%+v, %v, want %s", job, err, want)
		}
		must(t, e.Close())
	}
	e, err := OpenEmbedded(ctx, "")
	must(t, err)
	if e.Durable() {
		t.Errorf("%v says that it is durable", e)
	}
	must(t, e.Close())
	if left, err := filepath.Glob(filepath.Join(temp, "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestEmbeddedWithoutRedis: where there is no redis-server, jobs run all the same.
func TestEmbeddedWithoutRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	e, err := OpenEmbedded(t.Context(), "")
	must(t, err)
	defer e.Close()
	if e.Durable() {
		t.Errorf("%v says that it is durable", e)
	}
	q := open(t, e.Client(), Config{Handler: succeed})
	must(t, q.Start(t.Context()))
	defer q.Stop()
	r, err := q.Enqueue(t.Context(), "a", asynq.NewTask("x", nil))
	must(t, err)
	if job, err := q.Wait(t.Context(), "a", r.ID); err != nil || job.State != StateDone {
		t.Errorf("%+v, %v, want it done", job, err)
	}
}
