package workers

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

func testMaker(t testing.TB, places int) *taskMaker {
	t.Helper()
	m, err := newTaskMaker(t.Context(), places)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m
}

func grantOf(tenant, id string) *queue.Grant {
	g := &queue.Grant{Type: "work", Payload: []byte(id), Charged: 1, MaxAttempts: 5}
	g.Tenant, g.ID = tenant, id
	return g
}

// TestTasksAreNotMixedUp makes many at a time, with the same ids in many tenants. Each function
// finds the context, the task, the values and the writer of its own job.
func TestTasksAreNotMixedUp(t *testing.T) {
	m := testMaker(t, 8)
	type key struct{}
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			for n := range 200 {
				g := grantOf(fmt.Sprint("tenant-", worker), fmt.Sprint("id-", n%7))
				g.Payload = fmt.Append(nil, worker, n)
				g.Headers = map[string]string{"n": fmt.Sprint(n), "worker": fmt.Sprint(worker)}
				g.Charged, g.MaxAttempts = n+1, n+worker+2
				ctx := WithJob(t.Context(), Info{ID: g.ID})
				called := 0
				err := m.run(ctx, context.WithValue(t.Context(), key{}, n), g, func(ctx context.Context, task *asynq.Task) {
					called++
					want := told{g.ID, n, n + worker + 1, g.Tenant, g.ID}
					if got := toldBy(ctx, task); got != want || ctx.Value(key{}) != n || string(task.Payload()) != string(g.Payload) ||
						task.Headers()["n"] != fmt.Sprint(n) || task.Headers()["worker"] != fmt.Sprint(worker) || task.Type() != "work" {
						t.Errorf("%+v with payload %q, headers %v, value %v; want %+v, %q, %v, %d", got, task.Payload(), task.Headers(),
							ctx.Value(key{}), want, g.Payload, g.Headers, n)
					}
					if _, err := task.ResultWriter().Write(g.Payload); err != nil {
						t.Error(err)
					}
				})
				if err != nil || called != 1 || string(ResultFrom(ctx)) != string(g.Payload) {
					t.Errorf("called %d times, %v, result %q; want once and %q", called, err, ResultFrom(ctx), g.Payload)
				}
			}
		})
	}
	all.Wait()
}

// TestContextsOfTasks: a handler's context ends as the pool says, for its reason and at its
// deadline, whatever asynq made.
func TestContextsOfTasks(t *testing.T) {
	m := testMaker(t, 1)
	reason := errors.New("reason")
	deadline := time.Now().Add(time.Hour)
	outer, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	ctx, end := context.WithCancelCause(outer)
	err := m.run(ctx, context.Background(), grantOf("a", "1"), func(ctx context.Context, _ *asynq.Task) {
		inner, cancel := context.WithCancel(context.WithValue(ctx, probeKey{}, 1)) // as a middleware does
		defer cancel()
		if got, ok := inner.Deadline(); !ok || !got.Equal(deadline) {
			t.Errorf("deadline %v, want %v", got, deadline)
		}
		if inner.Err() != nil {
			t.Errorf("it has ended: %v", inner.Err())
		}
		end(reason)
		<-inner.Done()
		if cause := context.Cause(inner); cause != reason {
			t.Errorf("it ended by %v, want %v", cause, reason)
		}
	})
	if err != nil {
		t.Error(err)
	}
	called := false
	if err := m.run(ctx, context.Background(), grantOf("a", "1"), func(ctx context.Context, _ *asynq.Task) {
		called = context.Cause(ctx) == reason
	}); err != nil || !called {
		t.Errorf("%v, a context that has ended already is not what the function sees", err)
	}
}

// TestResultsOfStartsThatLostTheirJob: what a handler writes after its context ended, or after it
// returned, is refused, and never lands with the next start of its job, which may be in the same
// pool.
func TestResultsOfStartsThatLostTheirJob(t *testing.T) {
	m := testMaker(t, 1) // the place is free once a context has ended, though the handler still runs
	g := grantOf("a", "1")
	first, end := context.WithCancel(WithJob(t.Context(), Info{}))
	var all sync.WaitGroup
	var old *asynq.ResultWriter
	started, leave := make(chan struct{}), make(chan struct{})
	all.Go(func() {
		if err := m.run(first, t.Context(), g, func(_ context.Context, task *asynq.Task) {
			old = task.ResultWriter()
			close(started)
			<-leave
		}); err != nil {
			t.Error(err)
		}
	})
	<-started
	if _, err := old.Write([]byte("early")); err != nil || string(ResultFrom(first)) != "early" {
		t.Errorf("%v, result %q; want early", err, ResultFrom(first))
	}
	end()
	second := WithJob(t.Context(), Info{})
	refused := func(when string) {
		t.Helper()
		if n, err := old.Write([]byte("late")); err == nil || n != 0 {
			t.Errorf("%s: wrote %d bytes, %v; want it refused", when, n, err)
		}
	}
	err := m.run(second, t.Context(), g, func(_ context.Context, task *asynq.Task) {
		refused("its context ended")
		if _, err := task.ResultWriter().Write([]byte("new")); err != nil {
			t.Error(err)
		}
		close(leave)
		all.Wait() // that the first is forgotten changes nothing for the second
		if _, err := task.ResultWriter().Write([]byte("newer")); err != nil {
			t.Error(err)
		}
	})
	refused("it returned")
	if got := string(ResultFrom(second)); err != nil || got != "newer" {
		t.Errorf("%v, result %q, want newer", err, got)
	}
	if len(m.byKey) > 0 {
		t.Errorf("%d results are still waited for", len(m.byKey))
	}
}

// TestResultsThatAreTooLarge are an error and change nothing; SetResult, which returns none, cuts
// them.
func TestResultsThatAreTooLarge(t *testing.T) {
	m := testMaker(t, 1)
	ctx := WithJob(t.Context(), Info{})
	err := m.run(ctx, t.Context(), grantOf("a", "1"), func(_ context.Context, task *asynq.Task) {
		if n, err := task.ResultWriter().Write(make([]byte, MaxResult)); n != MaxResult || err != nil {
			t.Errorf("wrote %d, %v; want %d", n, err, MaxResult)
		}
		n, err := task.ResultWriter().Write(make([]byte, MaxResult+1))
		if n != 0 || err == nil || !strings.Contains(err.Error(), "16385 bytes: want at most 16384") {
			t.Errorf("wrote %d, %v; want it refused, and both sizes named", n, err)
		}
	})
	if len(ResultFrom(ctx)) != MaxResult || err != nil {
		t.Errorf("%v, result of %d bytes, want the one before of %d", err, len(ResultFrom(ctx)), MaxResult)
	}
}

// TestTasksWhoseGoroutineEnds: their place is free again, and they are not waited for.
func TestTasksWhoseGoroutineEnds(t *testing.T) {
	m := testMaker(t, 1)
	for range 3 {
		if err := m.run(t.Context(), t.Context(), grantOf("a", "1"), func(context.Context, *asynq.Task) { runtime.Goexit() }); err != nil {
			t.Error(err)
		}
	}
}

// TestClosedTaskMaker runs nothing, leaves nothing behind, and does not wait for functions that
// ignore the end of their contexts.
func TestClosedTaskMaker(t *testing.T) {
	before := goleak.IgnoreCurrent()
	m, err := newTaskMaker(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	started, leave := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_ = m.run(t.Context(), t.Context(), grantOf("a", "1"), func(context.Context, *asynq.Task) {
			close(started)
			<-leave
		})
	})
	<-started
	m.close()
	err = m.run(t.Context(), t.Context(), grantOf("a", "2"), func(context.Context, *asynq.Task) { t.Error("called") })
	if !errors.Is(err, errTaskMakerClosed) {
		t.Errorf("got %v, want %v", err, errTaskMakerClosed)
	}
	close(leave)
	all.Wait()
	redistest.VerifyNone(t, before)
}

// dequeueOnly is a taskBroker that does not see what is written.
type dequeueOnly struct {
	redis.UniversalClient
	b *taskBroker
}

func (d dequeueOnly) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return d.b.EvalSha(ctx, sha, keys, args...)
}

// TestStrangeAsynq: an asynq that takes no messages from where v0.26 does, writes no results there,
// or makes nothing of them, is found out at the start, and named.
func TestStrangeAsynq(t *testing.T) {
	before := goleak.IgnoreCurrent()
	defer func(d time.Duration) { probePatience = d }(probePatience)
	probePatience = time.Second
	for name, strange := range map[string]func(*taskBroker) redis.UniversalClient{
		"another dequeue":   func(b *taskBroker) redis.UniversalClient { return b.UniversalClient },
		"results elsewhere": func(b *taskBroker) redis.UniversalClient { return dequeueOnly{b.UniversalClient, b} },
	} {
		m, err := newTaskMakerOn(t.Context(), 1, func(m *taskMaker) redis.UniversalClient { return strange(newTaskBroker(m).(*taskBroker)) })
		if err == nil {
			m.close()
		}
		if err == nil || !strings.Contains(err.Error(), "use v0.26") {
			t.Errorf("%s: got %v, want an error that says which version to use", name, err)
		}
	}
	redistest.VerifyNone(t, before)

	ended, end := context.WithCancelCause(t.Context())
	reason := errors.New("reason")
	end(reason)
	if _, err := newTaskMakerOn(ended, 1, func(m *taskMaker) redis.UniversalClient { return newTaskBroker(m).(*taskBroker).UniversalClient }); err != reason {
		t.Errorf("got %v, want the reason why there was no time to find out", err)
	}

	// What a handler would see without all this.
	wrong := (&taskMaker{}).wrong(t.Context(), grantOf("a", "1"), asynq.NewTask("x", nil))
	if want := []string{"GetTaskID", "GetMaxRetry", "GetQueueName", "BaseContext", "Type", "Payload", "Headers", "ResultWriter"}; !slices.Equal(wrong, want) {
		t.Errorf("found out %v, want %v", wrong, want)
	}
}

// BenchmarkTaskMaker is what a start costs for asynq's context and task.
func BenchmarkTaskMaker(b *testing.B) {
	for _, size := range []int{200, 100_000} {
		b.Run(fmt.Sprint(size, " bytes"), func(b *testing.B) {
			m := testMaker(b, 32)
			g := grantOf("tenant", "id")
			g.Payload = make([]byte, size)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if err := m.run(ctx, ctx, g, func(context.Context, *asynq.Task) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
