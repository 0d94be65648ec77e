package workers

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/seldom"
	"github.com/jobshaper/jobshaper/internal/usable"
	"github.com/jobshaper/jobshaper/shaper"
)

// Config configures a Pool. A zero field means its default.
type Config struct {
	Concurrency int           // places: how many jobs run at a time; default 10
	Grace       time.Duration // how long Stop lets running jobs go on; default 30s
	KillGrace   time.Duration // how long Stop waits for them after it has ended their contexts; default 5s
	// ChainFor is how long a worker goes on taking jobs without a ticket each; default 10s,
	// negative = not at all.
	ChainFor time.Duration
	Logger   *slog.Logger // default slog.Default()
	Metrics  *Metrics     // default: none

	// These four are asynq's, so that they can be copied from an asynq.Config. A panic in one
	// of them is logged, and the default takes its place.

	// BaseContext returns a context whose values a handler's context has, and whose end ends it
	// too. Default: context.Background.
	BaseContext func() context.Context

	// ErrorHandler is told of each error that a handler returned (for a panic, see
	// asynq.IsPanicError), with the handler's context and task. It is not told of jobs that Stop
	// hands back. The job does not end before it returns. Default: nobody is told.
	ErrorHandler asynq.ErrorHandler

	// IsFailure says whether an error counts as an attempt. One that does not leaves the job all
	// its attempts, but is one of the max_throttles starts after which the job is dead all the
	// same. It is not asked about errors that say what to do: SkipRetry, RevokeTask, Throttled.
	// Default: every error counts.
	IsFailure func(error) bool

	// RetryDelayFunc says how long a job waits after an error, at most MaxRetryDelay; n is how
	// often the job was retried before. It is not asked about SkipRetry, RevokeTask and Throttled.
	// Default: the policy's backoff.
	RetryDelayFunc asynq.RetryDelayFunc

	// Forgotten is called when Redis has lost all its data (FLUSHALL, or a restart without its
	// file), before the pool reports itself there again: until it returns nil, the pool is given no
	// job. A program that set policies sets them again here. Default: nothing is called.
	Forgotten func(context.Context) error
}

func (c Config) withDefaults() (Config, error) {
	c.Concurrency = cmp.Or(c.Concurrency, 10)
	if c.Concurrency < 0 || c.Concurrency > 100_000 {
		return c, &shaper.FieldError{Field: "concurrency", Value: fmt.Sprint(c.Concurrency), Want: "1 to 100000"}
	}
	if c.Grace < 0 {
		return c, &shaper.FieldError{Field: "grace", Value: c.Grace.String(), Want: "more than 0, or 0 for the default"}
	}
	if c.KillGrace < 0 {
		return c, &shaper.FieldError{Field: "kill_grace", Value: c.KillGrace.String(), Want: "more than 0, or 0 for the default"}
	}
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.KillGrace = cmp.Or(c.KillGrace, 5*time.Second)
	c.ChainFor = cmp.Or(c.ChainFor, 10*time.Second)
	if c.ErrorHandler != nil && usable.Nil(c.ErrorHandler) {
		return c, &shaper.FieldError{Field: "ErrorHandler", Value: "a nil pointer or function", Want: "a handler of errors, or none"}
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c, nil
}

// Pool runs the jobs of one downstream in this process, at most Concurrency at a time. Any number
// of pools may serve a downstream, in any number of processes.
type Pool struct {
	q         queue.Queue
	id        string // names the pool in tokens: letters, digits and '-'
	admin     *shaper.Admin
	gate      *queue.Gate
	handler   asynq.Handler
	cfg       Config
	log       *slog.Logger
	bell      *doorbell
	clock     redisClock
	tooLate   seldom.Counter // jobs that went back because their slots were missed
	throttles throttles      // of tenants, so that the log tells of them once
	places    chan struct{}  // holds one for each ticket that is being served
	stock     stock          // of places that are made ready, if handler is a Preparer

	// hold ends when Stop begins: nothing starts after that. work ends when Stop has waited long
	// enough: nobody waits for Redis after that.
	hold, work       context.Context
	endHold, abandon context.CancelFunc

	life     sync.Mutex // held by Start and Stop, guards what follows
	started  bool
	stopped  bool
	unhook   func() bool // of the end of Start's context
	server   *asynq.Server
	tickets  *heldClient // of server
	tasks    *taskMaker
	listener *queue.Listener
	beats    *beater

	mu       sync.Mutex        // guards what follows
	running  map[string]*start // by token
	pauses   pauses
	draining bool           // tickets are given back
	idle     sync.WaitGroup // counts tickets that are being served
}

// New returns a Pool that has not started. handler is any asynq.Handler, even a ServeMux with
// middleware, as it runs on an asynq server. Inside it, JobFrom tells about the job, and so do
// asynq's functions: GetTaskID tells its id, GetRetryCount how many of its attempts were used up
// before this one, GetMaxRetry how many there are after the first, GetQueueName its tenant. The
// task's ResultWriter does what SetResult does, but refuses more than MaxResult bytes.
// docs/migrating-from-asynq.md has the rest. rdb remains the caller's to close.
func New(rdb redis.UniversalClient, downstream string, handler asynq.Handler, cfg Config) (*Pool, error) {
	admin, err := shaper.NewAdmin(rdb, downstream)
	if err != nil {
		return nil, err // such a queue cannot be opened either
	}
	if usable.Nil(handler) {
		return nil, &shaper.FieldError{Field: "handler", Value: "nil", Want: "an asynq.Handler"}
	}
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	q := queue.Open(rdb, downstream)
	p := &Pool{q: q, id: poolID(), admin: admin, gate: queue.NewGate(q), handler: handler, cfg: cfg,
		bell: newDoorbell(), places: make(chan struct{}, cfg.Concurrency), running: map[string]*start{},
		tooLate: seldom.Counter{Every: 5 * time.Second}}
	p.stock.from, _ = handler.(Preparer)
	p.stock.most = cfg.Concurrency
	p.log = cfg.Logger.With("downstream", downstream, "pool", p.id)
	p.hold, p.endHold = context.WithCancel(context.Background())
	p.work, p.abandon = context.WithCancel(context.Background())
	return p, nil
}

var notInPoolID = regexp.MustCompile(`[^A-Za-z0-9-]+`)

func poolID() string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return processName(thisHost(), os.Getpid()) + "-" + hex.EncodeToString(b[:])
}

// ID names the pool, in logs and in Redis.
func (p *Pool) ID() string { return p.id }

// Ring tells the pool that tickets have arrived, see NewDispatcher.
func (p *Pool) Ring() { p.bell.ring() }

// Start begins to take jobs, and returns. The pool runs until ctx ends or Stop is called. Both end
// it in the same order: running jobs do not see ctx end, they have the grace. Stop waits in either
// case. It returns an error, and nothing runs, if Redis cannot be reached, or if the pool was
// started or stopped before.
func (p *Pool) Start(ctx context.Context) error {
	p.life.Lock()
	defer p.life.Unlock()
	if p.started || p.stopped {
		return errors.New("pool was started or stopped before")
	}
	tasks, err := newTaskMaker(ctx, p.cfg.Concurrency)
	if err != nil {
		return fmt.Errorf("start pool: %w", err)
	}
	defer func() {
		if !p.started {
			tasks.close()
		}
	}()
	p.tasks = tasks
	beats := newBeater(p)
	if err := beats.follow(ctx); err != nil {
		return fmt.Errorf("start pool: %w", err)
	}
	p.beats = beats
	if err := p.beats.once(ctx, p.cfg.Concurrency); err != nil { // the pool is known before it takes the first ticket
		return fmt.Errorf("start pool: %w", err)
	}
	p.listener = queue.NewListener(p.q, p.hear)
	carrier := asynqQueue(p.q.Downstream)
	p.tickets = newHeldClient(newDrainClient(p.q.RDB), carrier, p.bell, p.room)
	p.server = asynq.NewServerFromRedisClient(p.tickets, asynq.Config{
		Concurrency:       p.cfg.Concurrency,
		Queues:            map[string]int{carrier: 1},
		TaskCheckInterval: pollBusy,
		ShutdownTimeout:   time.Second, // Stop has waited for everything before
		RetryDelayFunc:    func(int, error, *asynq.Task) time.Duration { return time.Second },
		Logger:            asynqLogger{p.log},
		LogLevel:          asynq.WarnLevel,
	})
	if err := p.server.Start(asynq.HandlerFunc(p.ticket)); err != nil {
		p.listener.Close()
		return fmt.Errorf("start asynq: %w", err)
	}
	p.started = true
	p.beats.start()
	p.unhook = context.AfterFunc(ctx, p.Stop)
	return nil
}

// room is for how many tickets to ask at a time: where a round trip is short, one call after the
// other is soon made.
func (p *Pool) room() int {
	if p.gate.Trip.Takes() == 0 {
		return 1
	}
	return cap(p.places) - len(p.places)
}

// hear acts on a signal of the downstream.
func (p *Pool) hear(s queue.Signal) {
	switch s.Kind {
	case 't':
		time.AfterFunc(settling, p.bell.ring)
	case 'c':
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.running {
			if r.grant.Tenant == s.Tenant && r.grant.ID == s.ID {
				r.end(shaper.ErrCancelled)
			}
		}
	case 'p':
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pauses.note(s.Tenant, time.Now())
		for _, r := range p.running {
			p.pauses.check(r)
		}
	}
}

// Stop ends the pool and waits for it; it may be called twice, or before Start, which then fails.
// In this order, each for the reason given:
//
//  1. nothing starts any more; jobs that hold a slot that has not come are handed back (uncharged)
//  2. asynq pulls no more tickets; those that it has are given back
//  3. running jobs have the grace to end; their leases are kept up meanwhile
//  4. the contexts of the rest end with ErrStopping, and what comes back soon is handed back,
//     uncharged
//  5. what still runs is handed back all the same: the process is about to end, and waiting for the
//     lease would only delay the job. A program that goes on after Stop should have handlers that
//     heed their context.
func (p *Pool) Stop() {
	p.life.Lock()
	defer p.life.Unlock()
	running := p.started && !p.stopped
	p.stopped = true
	if !running {
		return
	}
	p.unhook()
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	p.endHold()
	p.beats.places(0)
	p.bell.stop()
	p.server.Stop()
	var unused sync.WaitGroup
	for _, message := range p.tickets.unused() {
		if t, err := queue.ParseTicket(payloadOf(message)); err == nil {
			unused.Go(func() { p.giveBack(t) })
		}
	}
	unused.Wait()
	if !p.waitIdle(p.cfg.Grace) {
		p.log.Warn("grace is over, ending running jobs", "jobs", len(p.own()))
		p.endAll(shaper.ErrStopping)
		if !p.waitIdle(p.cfg.KillGrace) {
			p.handBack()
		}
	}
	p.abandon()
	p.server.Shutdown()
	p.stock.close()
	p.tasks.close()
	p.beats.stop()
	p.listener.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := p.gate.Leave(ctx, p.id); err != nil {
		p.log.Warn("pool could not say goodbye; it counts as gone soon", "err", err)
	}
}

// waitIdle waits until no ticket handler is active, but no longer than d.
func (p *Pool) waitIdle(d time.Duration) bool {
	done := make(chan struct{})
	go func() { // ends with the last handler
		p.idle.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

func (p *Pool) endAll(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.running {
		r.end(cause)
	}
}

// handBack returns the jobs of handlers that ignored the end of their context.
func (p *Pool) handBack() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, g := range p.own() {
		p.log.Error("handler ignores its context, its job is handed back", "tenant", g.Tenant, "job", g.ID)
		if _, err := p.gate.Finish(ctx, g.Grant, queue.Finish{Ending: queue.EndBack}); err != nil {
			p.log.Error("job could not be handed back; its lease will end", "job", g.ID, "err", err)
		}
	}
}

// own returns what the pool runs.
func (p *Pool) own() []queue.Held {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]queue.Held, 0, len(p.running))
	for _, r := range p.running {
		out = append(out, queue.Held{Grant: r.grant, Begun: r.begun.Load()})
	}
	return out
}

// asynqLogger passes asynq's log lines on.
type asynqLogger struct{ *slog.Logger }

func (l asynqLogger) Debug(args ...any) { l.Logger.Debug("asynq: " + fmt.Sprint(args...)) }
func (l asynqLogger) Info(args ...any)  { l.Logger.Info("asynq: " + fmt.Sprint(args...)) }
func (l asynqLogger) Warn(args ...any)  { l.Logger.Warn("asynq: " + fmt.Sprint(args...)) }
func (l asynqLogger) Error(args ...any) { l.Logger.Error("asynq: " + fmt.Sprint(args...)) }
func (l asynqLogger) Fatal(args ...any) { l.Logger.Error("asynq: " + fmt.Sprint(args...)) }
