package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

const patience = testenv.Patience

// TestMain fails if a bench leaves a goroutine behind.
func TestMain(m *testing.M) {
	testenv.Abreast(2)
	redistest.VerifyTestMain(m)
}

// bench is a pool with its scheduler and its Redis, all the test's own.
type bench struct {
	t         *testing.T
	server    *redistest.Server
	rdb       *redis.Client
	client    *shaper.Client
	admin     *shaper.Admin
	scheduler *shaper.Scheduler
	pool      *Pool
}

func newBench(t *testing.T, handler asynq.HandlerFunc, cfg Config) *bench {
	t.Helper()
	b := &bench{t: t, server: redistest.Start(t)}
	b.rdb = b.server.Client()
	var err error
	b.client, err = shaper.NewClient(b.rdb, "d", shaper.ClientConfig{})
	b.must(err)
	b.admin, err = shaper.NewAdmin(b.rdb, "d")
	b.must(err)
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	b.pool, err = New(b.rdb, "d", handler, cfg)
	b.must(err)
	dispatcher, err := NewDispatcher(b.rdb, "d", b.pool.Ring)
	b.must(err)
	b.scheduler, err = shaper.NewScheduler(b.rdb, "d", dispatcher, shaper.SchedulerConfig{Logger: cfg.Logger})
	b.must(err)
	return b
}

// start starts both, until the test ends.
func (b *bench) start() *bench {
	b.t.Helper()
	b.must(b.pool.Start(b.t.Context()))
	b.t.Cleanup(b.pool.Stop)
	b.must(b.scheduler.Start(context.Background()))
	b.t.Cleanup(b.scheduler.Stop)
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// policy is set for every tenant.
func (b *bench) policy(p shaper.Policy) {
	b.t.Helper()
	b.must(b.admin.SetDownstream(b.t.Context(), shaper.DownstreamPolicy{Defaults: p}))
}

// offer offers a job whose id is its tenant's name and a number.
func (b *bench) offer(tenant string, n int) string {
	b.t.Helper()
	id := fmt.Sprintf("%s-%d", tenant, n)
	r, err := b.client.Enqueue(b.t.Context(), tenant, asynq.NewTask("work", []byte(tenant)), asynq.TaskID(id), asynq.Retention(time.Hour))
	b.must(err)
	if r.Status != shaper.Accepted {
		b.t.Fatalf("%+v, want accepted", r)
	}
	return id
}

// find returns a job.
func (b *bench) find(tenant, id string) shaper.Job {
	b.t.Helper()
	job, err := b.client.Find(context.Background(), tenant, id)
	b.must(err)
	return job
}

// wait returns a job once it has ended.
func (b *bench) wait(tenant, id string) shaper.Job {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	job, err := b.client.Wait(ctx, tenant, id)
	if err != nil {
		b.t.Fatalf("%v; %+v", err, job)
	}
	return job
}

// until waits until a condition holds.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for begun := time.Now(); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// brokenError is an error whose text ends in a panic, as that of a nil *MyError does; or in Goexit.
type brokenError struct{ goexit bool }

func (e *brokenError) Error() string {
	if e.goexit { // a nil e ends here
		runtime.Goexit()
	}
	return ""
}

// TestHostileHandlers has handlers do what handlers do. Each job ends with an error that can be
// read, no other job suffers, and no place is lost.
func TestHostileHandlers(t *testing.T) {
	t.Parallel()
	hostile := map[string]struct {
		handler asynq.HandlerFunc
		want    string // part of the error
	}{
		"panic":       {func(context.Context, *asynq.Task) error { panic("oh dear") }, "handler panicked: oh dear"},
		"nil-panic":   {func(context.Context, *asynq.Task) error { panic(nil) }, "handler panicked: "},
		"goexit":      {func(context.Context, *asynq.Task) error { runtime.Goexit(); return nil }, "ended its goroutine"},
		"nil-error":   {func(context.Context, *asynq.Task) error { var e *brokenError; return e }, "handler panicked: "},
		"goexit-text": {func(context.Context, *asynq.Task) error { return &brokenError{goexit: true} }, "ended its goroutine"},
		"no-text":     {func(context.Context, *asynq.Task) error { return errors.New("\xff\xfe\x00 no text") }, "\uFFFD no text"},
		"long":        {func(context.Context, *asynq.Task) error { return errors.New(strings.Repeat("long ", 2<<20)) }, "long long"},
		"deaf": {func(ctx context.Context, _ *asynq.Task) error {
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond)
			return errors.New("slow")
		}, "timed out after 50ms: slow"},
	}
	b := newBench(t, func(ctx context.Context, task *asynq.Task) error {
		if h, ok := hostile[string(task.Payload())]; ok {
			return h.handler(ctx, task)
		}
		return nil
	}, Config{Concurrency: 3})
	b.policy(shaper.Policy{MaxAttempts: 1, Timeout: 50 * time.Millisecond})
	b.start()
	for name := range hostile {
		b.offer(name, 1)
		b.offer("good-"+name, 1)
	}
	for name, h := range hostile {
		job := b.wait(name, name+"-1")
		if job.State != shaper.StateDead || !strings.Contains(job.Error, h.want) || !utf8.ValidString(job.Error) || len(job.Error) > maxErrorText+8 {
			t.Errorf("%s: %s with error %.200q, want dead and %q", name, job.State, job.Error, h.want)
		}
		if job := b.wait("good-"+name, "good-"+name+"-1"); job.State != shaper.StateDone {
			t.Errorf("beside %s: %s, want done", name, job.State)
		}
	}
}

// TestPlacesAreKept serves more tickets at once than there are places, as asynq does once it has
// given up on one whose handler still runs.
func TestPlacesAreKept(t *testing.T) {
	var running atomic.Int64
	release := make(chan struct{})
	end := sync.OnceFunc(func() { close(release) })
	b := newBench(t, func(context.Context, *asynq.Task) error {
		if n := running.Add(1); n > 2 {
			t.Errorf("%d run at a time, want 2", n)
		}
		defer running.Add(-1)
		<-release
		return nil
	}, Config{Concurrency: 2})
	_, err := b.pool.gate.Beat(t.Context(), "elsewhere", 10, time.Minute, nil) // places to release for
	b.must(err)
	b.pool.tasks, err = newTaskMaker(t.Context(), 10) // the pool does not start
	b.must(err)
	t.Cleanup(b.pool.tasks.close)
	var served sync.WaitGroup
	var tickets atomic.Int64
	s, err := shaper.NewScheduler(b.rdb, "d", dispatcherFunc(func(_ context.Context, released []string) error {
		for _, ticket := range released {
			tickets.Add(1)
			served.Go(func() { _ = b.pool.ticket(context.Background(), asynq.NewTask(ticketType, []byte(ticket))) })
		}
		return nil
	}), shaper.SchedulerConfig{})
	b.must(err)
	b.must(s.Start(t.Context()))
	defer served.Wait()
	defer s.Stop()
	defer end()
	for i := range 5 {
		b.offer(fmt.Sprintf("t%d", i), 1)
	}
	until(t, "both places are taken, and more tickets came", func() bool { return running.Load() == 2 && tickets.Load() >= 5 })
	end()
	for i := range 5 {
		if job := b.wait(fmt.Sprintf("t%d", i), fmt.Sprintf("t%d-1", i)); job.State != shaper.StateDone {
			t.Errorf("job %d is %s, want done", i, job.State)
		}
	}
}

// TestBeatDoesNotEndWhatChangesHands: a beat that finds no lease under a token whose successor is
// just being granted, or whose job is being reported, says nothing about the job.
func TestBeatDoesNotEndWhatChangesHands(t *testing.T) {
	b := newBench(t, func(context.Context, *asynq.Task) error { return nil }, Config{})
	s := b.pool.granted(&queue.Grant{Token: "p.1"}, time.Now(), nil)
	s.changing = true
	b.pool.lost(s.grant)
	if s.ctx.Err() != nil {
		t.Errorf("its context ended: %v", context.Cause(s.ctx))
	}
	s.changing = false
	b.pool.lost(s.grant)
	if cause := context.Cause(s.ctx); cause != shaper.ErrLeaseLost {
		t.Errorf("its context ended by %v, want %v", cause, shaper.ErrLeaseLost)
	}
}

// TestShorterLeasesAreKept shortens the lease while a job runs: its beats follow.
func TestShorterLeasesAreKept(t *testing.T) {
	testenv.Long(t, "lasts several leases")
	t.Parallel()
	started, release := make(chan struct{}, 10), make(chan struct{})
	b := newBench(t, func(ctx context.Context, _ *asynq.Task) error {
		started <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, Config{}).start()
	id := b.offer("a", 1)
	<-started
	const lease = 3 * time.Second // of which a beat may be late by two thirds
	b.must(b.admin.SetDownstream(t.Context(), shaper.DownstreamPolicy{Lease: lease}))
	// Until the first beat with it, and until a lease without beats would have ended.
	time.Sleep(beatEvery + lease + time.Second)
	close(release)
	if job := b.wait("a", id); job.State != shaper.StateDone || job.Crashes != 0 {
		t.Errorf("%s after %d crashes, want done after none", job.State, job.Crashes)
	}
}

// TestLongJobsCountWhileTheyRun: the start of a job is counted once its pool has said that the
// handler began, and not again when it ends.
func TestLongJobsCountWhileTheyRun(t *testing.T) {
	testenv.Long(t, "runs long jobs")
	t.Parallel()
	release := make(chan struct{})
	b := newBench(t, func(context.Context, *asynq.Task) error {
		<-release
		return nil
	}, Config{}).start()
	started := func() int64 {
		info, err := b.admin.Tenant(context.Background(), "a")
		b.must(err)
		return info.Counters.Started
	}
	id := b.offer("a", 1)
	until(t, "its start is counted", func() bool { return started() == 1 })
	if job := b.find("a", id); job.State != shaper.StateRunning {
		t.Errorf("%s when it was counted, want it running", job.State)
	}
	close(release)
	if job := b.wait("a", id); job.Attempt != 1 || started() != 1 {
		t.Errorf("attempt %d, %d starts counted in the end; want 1 and 1", job.Attempt, started())
	}
}

func TestCancelEndsARunningHandler(t *testing.T) {
	causes := make(chan error, 1)
	started := make(chan struct{})
	b := newBench(t, func(ctx context.Context, _ *asynq.Task) error {
		close(started)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, Config{}).start()
	id := b.offer("a", 1)
	<-started
	if state, err := b.client.Cancel(t.Context(), "a", id); err != nil || state != shaper.StateRunning {
		t.Fatalf("cancel: %s %v, want running", state, err)
	}
	if cause := <-causes; cause != shaper.ErrCancelled {
		t.Errorf("its context ended by %v, want %v", cause, shaper.ErrCancelled)
	}
	if job := b.wait("a", id); job.State != shaper.StateCancelled {
		t.Errorf("%s, want cancelled", job.State)
	}
}

// ahead does something to a job while its worker waits for its slot, and returns the job's bench.
// The first slot of a new Redis is two leads away. Where the machine takes longer than the second
// of them, that is done again, on another bench.
func ahead(t *testing.T, h asynq.HandlerFunc, do func(*bench, shaper.Job)) (*bench, shaper.Job) {
	t.Helper()
	for {
		b := newBench(t, h, Config{})
		b.must(b.admin.SetDownstream(t.Context(), shaper.DownstreamPolicy{
			Lead: time.Second, Defaults: shaper.Policy{Rate: buckets.PerSecond(2)},
		}))
		b.start()
		id := b.offer("a", 1)
		var job shaper.Job
		until(t, "it owns a slot", func() bool {
			job = b.find("a", id)
			return job.State == shaper.StateRunning || job.State.Ended()
		})
		if do(b, job); time.Now().Before(job.Slot) {
			return b, job
		}
		b.pool.Stop()
	}
}

// TestCancelledBeforeItsSlot: a job that is cancelled while its worker waits for the slot does not
// start.
func TestCancelledBeforeItsSlot(t *testing.T) {
	t.Parallel()
	var started sync.Map // slots
	h := func(ctx context.Context, _ *asynq.Task) error {
		info, _ := JobFrom(ctx)
		started.Store(info.Slot, true)
		return nil
	}
	var state shaper.State
	var err error
	b, job := ahead(t, h, func(b *bench, job shaper.Job) { state, err = b.client.Cancel(t.Context(), "a", job.ID) })
	if err != nil || state != shaper.StateRunning {
		t.Fatalf("cancel: %s %v, want running", state, err)
	}
	if job := b.wait("a", job.ID); job.State != shaper.StateCancelled {
		t.Errorf("%s, want cancelled", job.State)
	}
	if _, ran := started.Load(job.Slot); ran {
		t.Error("it started, although it was cancelled before its slot")
	}
}

// TestHandlerLearnsOfItsJob: what a handler is told agrees with what is known outside, and its
// result is kept.
func TestHandlerLearnsOfItsJob(t *testing.T) {
	infos := make(chan Info, 1)
	b := newBench(t, func(ctx context.Context, task *asynq.Task) error {
		info, _ := JobFrom(ctx)
		infos <- info
		SetResult(ctx, []byte("found"))
		return nil
	}, Config{})
	b.policy(shaper.Policy{Timeout: time.Minute})
	b.start()
	job := b.wait("a", b.offer("a", 1))
	want := Info{ID: "a-1", Tenant: "a", Downstream: "d", Type: "work", Attempt: job.Attempt, Slot: job.Slot, Timeout: time.Minute}
	if got := <-infos; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if job.State != shaper.StateDone || string(job.Result) != "found" {
		t.Errorf("%s with result %q, want done with found", job.State, job.Result)
	}
}

func TestNewPoolChecksItsInput(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer rdb.Close()
	h := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	for field, err := range map[string]error{
		"downstream":  second(New(rdb, "no/name", h, Config{})),
		"handler":     second(New(rdb, "d", nil, Config{})),
		"concurrency": second(New(rdb, "d", h, Config{Concurrency: -1})),
		"grace":       second(New(rdb, "d", h, Config{Grace: -1})),
		"kill_grace":  second(New(rdb, "d", h, Config{KillGrace: -1})),
		"redis":       second(New((*redis.Client)(nil), "d", h, Config{})),
		"registerer":  second(NewMetrics(nil, "d")),
	} {
		var fe *shaper.FieldError
		if !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
	p, err := New(rdb, "d", h, Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Start(ctx); !errors.Is(err, shaper.ErrStore) {
		t.Errorf("start without Redis: %v, want %v", err, shaper.ErrStore)
	}
	p.Stop()
}

func second[T any](_ T, err error) error { return err }

// TestAsynqQueueThatIsPaused: if somebody pauses the asynq queue, no more tickets are made than those
// that were on their way when it was seen; the log says what to do, and afterwards all jobs run.
func TestAsynqQueueThatIsPaused(t *testing.T) {
	b := newBench(t, func(context.Context, *asynq.Task) error { return nil }, Config{Concurrency: 100})
	dispatcher, err := NewDispatcher(b.rdb, "d", b.pool.Ring)
	b.must(err)
	var said safeBuffer
	var looks, tickets atomic.Int64
	b.scheduler, err = shaper.NewScheduler(b.rdb, "d", dispatcher, shaper.SchedulerConfig{TicketTTL: 100 * time.Millisecond,
		Poll: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&said, nil)), OnRelease: func(_ time.Duration, n int) {
			looks.Add(1)
			tickets.Add(int64(n))
		}})
	b.must(err)
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: b.server.Addr()})
	defer inspector.Close()
	b.start()
	b.offer("first", 1)
	b.wait("first", "first-1") // so that asynq knows the queue
	b.must(inspector.PauseQueue(asynqQueue("d")))
	b.must(b.admin.SetTenant(t.Context(), "a", shaper.Policy{Rate: buckets.PerSecond(1000)}))
	for i := range 30 {
		b.offer("a", i)
	}
	until(t, "it is said", func() bool { return said.count("asynq queue resume shaper-d") > 0 })
	until(t, "tickets that were out are lost", func() bool {
		s, err := b.admin.Stats(t.Context(), false)
		return err == nil && s.Out == 0
	})
	made, calls := tickets.Load(), looks.Load()
	until(t, "the scheduler looks again and again", func() bool { return looks.Load() >= calls+10 })
	if n := tickets.Load() - made; n > 0 {
		t.Errorf("%d tickets more for a queue that is paused", n)
	}
	b.must(inspector.UnpauseQueue(asynqQueue("d")))
	for i := range 30 {
		b.wait("a", fmt.Sprintf("a-%d", i))
	}
}
