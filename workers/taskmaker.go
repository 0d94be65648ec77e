package workers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// Only asynq's server can make what asynq.GetTaskID and its kin read from a context, and a task's
// ResultWriter, and only from a message that it took from its broker. So a pool has a second asynq
// server, whose broker is in the memory of this process: it is handed a message for each start of a
// job, and runs the start. None of asynq's internals are touched, and Redis hears nothing of it.

// taskMaker runs functions in what asynq makes of a job: its context and its task.
type taskMaker struct {
	server *asynq.Server
	queue  chan *making  // hands them to asynq's one loop
	bases  chan *making  // the one whose message was taken, until its base context is asked for
	closed chan struct{} // no more messages are taken

	mu    sync.Mutex
	byKey map[string]*making // by the key under which asynq thinks that the task is stored

	panicked error // what asynq makes of a panic
}

// making is one message on its way through asynq.
type making struct {
	message string
	key     string
	ctx     context.Context // ours
	run     func(context.Context, *asynq.Task)

	base context.Context // asynq's context is derived from it
	end  context.CancelFunc
	done chan struct{} // run has ended, or will not begin: err
	err  error
}

type makingKey struct{}

// newTaskMaker returns a taskMaker with room for so many functions at a time, once it has seen that
// asynq makes what it should.
func newTaskMaker(ctx context.Context, places int) (*taskMaker, error) {
	return newTaskMakerOn(ctx, places, newTaskBroker)
}

func newTaskMakerOn(ctx context.Context, places int, broker func(*taskMaker) redis.UniversalClient) (*taskMaker, error) {
	m := &taskMaker{queue: make(chan *making), bases: make(chan *making, 1), closed: make(chan struct{}), byKey: map[string]*making{}}
	panics := make(chan error, 1)
	m.server = asynq.NewServerFromRedisClient(broker(m), asynq.Config{
		Concurrency:       places,
		BaseContext:       m.base,
		TaskCheckInterval: time.Millisecond, // only slept once no more messages come
		ShutdownTimeout:   time.Millisecond, // Pool.Stop has waited for everything before
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
			if asynq.IsPanicError(err) { // only probe lets one through
				select {
				case panics <- err:
				default:
				}
			}
		}),
		LogLevel: asynq.FatalLevel,
		Logger:   quiet{}, // nothing here could interest anybody: errors come back from run
	})
	if err := m.server.Start(asynq.HandlerFunc(m.handle)); err != nil {
		return nil, fmt.Errorf("start asynq's server for contexts: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, probePatience, errNothingRuns)
	defer cancel()
	if err := m.probe(ctx, panics); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// close returns once asynq's server has ended.
func (m *taskMaker) close() {
	close(m.closed)
	m.server.Shutdown()
}

var errTaskMakerClosed = errors.New("the pool has stopped")

// run calls f in a goroutine of asynq's, with a context and a task of asynq's. The context is ctx,
// but also has what asynq knows of the job, and the values of `values`; what is written to the
// task's ResultWriter goes to SetResult. It returns when f has, even by Goexit; f must not panic.
// An error means that f was not called.
func (m *taskMaker) run(ctx, values context.Context, g *queue.Grant, f func(context.Context, *asynq.Task)) error {
	j := &making{message: messageOf(g), key: asynqKey(g.Tenant, "t:"+g.ID), ctx: ctx, run: f, done: make(chan struct{})}
	// This context must not have ended when asynq begins, even if ctx has: otherwise asynq would
	// not begin. Nobody has to end it, since it has no parent.
	j.base, j.end = context.WithCancel(context.WithValue(context.WithoutCancel(values), makingKey{}, j))
	m.mu.Lock()
	m.byKey[j.key] = j
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.byKey[j.key] == j { // else it lost its lease, and the next start of its job is here
			delete(m.byKey, j.key)
		}
	}()
	select {
	case m.queue <- j:
	case <-m.closed:
		return errTaskMakerClosed
	}
	<-j.done
	return j.err
}

// take hands a message to asynq's loop; false once there will be no more.
func (m *taskMaker) take() (message string, ok bool) {
	select {
	case j := <-m.queue:
		select {
		case m.bases <- j: // waits until the previous one has its base
			return j.message, true
		case <-m.closed:
			j.err = errTaskMakerClosed
			close(j.done)
			return "", false
		}
	case <-m.closed:
		return "", false
	}
}

// base returns what asynq derives a context from. asynq asks once for each message, and the next
// one is not handed out before it has asked for this one: see take.
func (m *taskMaker) base() context.Context {
	select {
	case j := <-m.bases:
		return j.base
	case <-m.closed:
		return context.Background()
	}
}

// handle is asynq's handler.
func (m *taskMaker) handle(ctx context.Context, task *asynq.Task) error {
	j, ok := ctx.Value(makingKey{}).(*making)
	if !ok {
		return errTaskMakerClosed
	}
	defer close(j.done)
	// Once our ctx has ended, nothing can be written to the ResultWriter any more, and asynq's
	// place is free.
	defer context.AfterFunc(j.ctx, j.end)()
	returned := false
	defer func() {
		if r := recover(); r != nil {
			panic(r) // asynq turns it into an error
		}
		if !returned { // Goexit, of which asynq would never hear
			j.end()
		}
	}()
	j.run(taskContext{j.ctx, ctx}, task)
	returned = true
	return nil
}

// write keeps the result of the task that is stored under a key.
func (m *taskMaker) write(key string, result []byte) error {
	m.mu.Lock()
	j := m.byKey[key]
	m.mu.Unlock()
	switch {
	case j == nil:
		return errors.New("its handler no longer runs")
	case len(result) > MaxResult:
		return fmt.Errorf("result of %d bytes: want at most %d; store it elsewhere and write where it is", len(result), MaxResult)
	}
	SetResult(j.ctx, result)
	return nil
}

// taskContext is a context that also has the values of another one.
type taskContext struct {
	context.Context
	asynqs context.Context
}

// Value implements context.Context. Package context asks in this way which context ends this one
// and why, so the embedded one's come first.
func (c taskContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.asynqs.Value(key)
}

// panicError is a panic of a handler, for asynq.IsPanicError too.
type panicError struct {
	value    any
	panicked error
}

func (e *panicError) Error() string {
	return fmt.Sprintf("handler panicked: %v: %v", e.value, errHandler)
}
func (e *panicError) Unwrap() []error { return []error{errHandler, e.panicked} }

// probePatience is how long asynq may take to make the first task. It takes less than a
// millisecond. A test waits less.
var probePatience = 30 * time.Second

var errNothingRuns = errors.New("asynq's server runs nothing")

// probe has asynq make a task, and looks at each part of it, so that a version of asynq that works
// differently is found out before it runs a job.
func (m *taskMaker) probe(ctx context.Context, panics <-chan error) error {
	g := &queue.Grant{Type: "shaper:probe", Payload: []byte("payload"), Headers: map[string]string{"name": "value"}, Charged: 3, MaxAttempts: 8}
	g.Tenant, g.ID = "tenant", "id"
	ctx = WithJob(ctx, Info{})
	var wrong []string
	run := make(chan error, 2)
	go func() {
		run <- m.run(ctx, context.WithValue(ctx, probeKey{}, "base"), g, func(ctx context.Context, task *asynq.Task) {
			wrong = m.wrong(ctx, g, task)
		})
		run <- m.run(ctx, ctx, g, func(context.Context, *asynq.Task) { panic("probe") })
	}()
	for range 2 {
		select {
		case err := <-run:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			if cause := context.Cause(ctx); cause != errNothingRuns {
				return cause
			}
			return strangeAsynq(errNothingRuns.Error())
		}
	}
	if len(wrong) > 0 {
		return strangeAsynq(strings.Join(wrong, ", "))
	}
	select {
	case m.panicked = <-panics:
		return nil
	case <-ctx.Done():
		return strangeAsynq("a panic is not reported")
	}
}

type probeKey struct{}

// wrong names what is not as it should be.
func (m *taskMaker) wrong(ctx context.Context, g *queue.Grant, task *asynq.Task) (wrong []string) {
	check := func(what string, good bool) {
		if !good {
			wrong = append(wrong, what)
		}
	}
	id, _ := asynq.GetTaskID(ctx)
	check("GetTaskID", id == g.ID)
	retried, _ := asynq.GetRetryCount(ctx)
	check("GetRetryCount", retried == g.Charged-1)
	most, _ := asynq.GetMaxRetry(ctx)
	check("GetMaxRetry", most == g.MaxAttempts-1)
	queue, _ := asynq.GetQueueName(ctx)
	check("GetQueueName", queue == g.Tenant)
	check("BaseContext", ctx.Value(probeKey{}) == "base")
	check("Type", task.Type() == g.Type)
	check("Payload", string(task.Payload()) == string(g.Payload))
	check("Headers", task.Headers()["name"] == "value")
	w := task.ResultWriter()
	if check("ResultWriter", w != nil); w == nil {
		return wrong
	}
	check("ResultWriter.TaskID", w.TaskID() == g.ID)
	n, err := w.Write([]byte("result"))
	check("ResultWriter.Write", n == len("result") && err == nil && string(ResultFrom(ctx)) == "result")
	return wrong
}

// strangeAsynq says that the program has an asynq that this package cannot work with.
func strangeAsynq(what string) error {
	version := "of an unknown version"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/hibiken/asynq" {
				version = dep.Version
			}
		}
	}
	return fmt.Errorf("asynq %s does not make tasks as v0.26 does (%s): use v0.26, or a version of jobshaper that knows it", version, what)
}

// quiet is a logger that says nothing.
type quiet struct{}

func (quiet) Debug(...any) {}
func (quiet) Info(...any)  {}
func (quiet) Warn(...any)  {}
func (quiet) Error(...any) {}
func (quiet) Fatal(...any) {}
