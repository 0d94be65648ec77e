package workers

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/shaper"
)

// told is what asynq tells a handler about its task.
type told struct {
	id             string
	retried, most  int
	queue, written string
}

func toldBy(ctx context.Context, task *asynq.Task) (t told) {
	t.id, _ = asynq.GetTaskID(ctx)
	t.retried, _ = asynq.GetRetryCount(ctx)
	t.most, _ = asynq.GetMaxRetry(ctx)
	t.queue, _ = asynq.GetQueueName(ctx)
	t.written = task.ResultWriter().TaskID()
	return t
}

var quick = shaper.Policy{Rate: buckets.PerSecond(1000), MaxAttempts: 3, Backoff: shaper.Backoff{Min: time.Millisecond, Max: time.Millisecond}}

// TestAsynqHandlersRunAsTheyAre: a handler and a middleware that were written for asynq's server
// find all that they ask it for, at the start that a ticket brings and at those that are chained to
// it.
func TestAsynqHandlersRunAsTheyAre(t *testing.T) {
	type key struct{}
	var mu sync.Mutex
	var got []string
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			mu.Lock()
			got = append(got, fmt.Sprintf("%+v", toldBy(ctx, task)))
			mu.Unlock()
			return next.ProcessTask(context.WithValue(ctx, key{}, "middleware"), task)
		})
	})
	mux.HandleFunc("work", func(ctx context.Context, task *asynq.Task) error {
		if ctx.Value(key{}) != "middleware" || string(task.Payload()) != "acme" || task.Headers()["name"] != "value" {
			return fmt.Errorf("context %v, payload %q, headers %v: %w", ctx.Value(key{}), task.Payload(), task.Headers(), asynq.SkipRetry)
		}
		// Only the first attempt fails.
		if retried, _ := asynq.GetRetryCount(ctx); retried == 0 {
			return errors.New("not at once")
		}
		id, _ := asynq.GetTaskID(ctx)
		n, err := task.ResultWriter().Write([]byte("result of " + id))
		if n != len("result of "+id) {
			return fmt.Errorf("wrote %d: %w", n, asynq.SkipRetry)
		}
		return err
	})
	b := newBench(t, mux.ProcessTask, Config{Concurrency: 1})
	b.policy(quick)
	var want []string
	for i := range 5 {
		id := fmt.Sprint("acme-", i)
		task := asynq.NewTaskWithHeaders("work", []byte("acme"), map[string]string{"name": "value"})
		_, err := b.client.Enqueue(t.Context(), "acme", task, asynq.TaskID(id), asynq.MaxRetry(3+i), asynq.Retention(time.Hour))
		b.must(err)
		for retried := range 2 {
			want = append(want, fmt.Sprintf("%+v", told{id, retried, 3 + i, "acme", id}))
		}
	}
	b.start()
	for i := range 5 {
		id := fmt.Sprint("acme-", i)
		if job := b.wait("acme", id); job.State != shaper.StateDone || string(job.Result) != "result of "+id || job.Attempt != 2 {
			t.Errorf("%+v, want it done at its second attempt, with its result", job)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("asynq told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestErrorHandlerIsTold of every error, with the handler's context and task, and cannot do any
// harm.
func TestErrorHandlerIsTold(t *testing.T) {
	var mu sync.Mutex
	got := map[string][]string{} // by what the handler does
	b := newBench(t, func(_ context.Context, task *asynq.Task) error {
		switch string(task.Payload()) {
		case "panics":
			panic("oh dear")
		case "goexit":
			runtime.Goexit()
		case "never":
			return fmt.Errorf("never: %w", asynq.SkipRetry)
		case "revoked":
			return asynq.RevokeTask
		case "good":
			return nil
		}
		return errors.New("no luck")
	}, Config{ErrorHandler: asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
		mu.Lock()
		t := toldBy(ctx, task)
		what := string(task.Payload())
		got[what] = append(got[what], fmt.Sprintf("%d of %d %v %v", t.retried, t.most, asynq.IsPanicError(err), err))
		mu.Unlock()
		switch what {
		case "told-panics":
			panic("in the error handler")
		case "told-goexit":
			runtime.Goexit()
		}
	})})
	b.policy(quick)
	b.start()
	retries := func(err string) []string { return []string{"0 of 2 " + err, "1 of 2 " + err, "2 of 2 " + err} }
	for what, tc := range map[string]struct {
		state shaper.State
		want  []string
	}{
		"fails":       {shaper.StateDead, retries("false no luck")},
		"panics":      {shaper.StateDead, retries("true handler panicked: oh dear: fault in the handler")},
		"goexit":      {shaper.StateDead, retries("false handler ended its goroutine: fault in the handler")},
		"never":       {shaper.StateDead, []string{"0 of 2 false never: skip retry for the task"}},
		"revoked":     {shaper.StateDone, []string{"0 of 2 false revoke task"}},
		"good":        {shaper.StateDone, nil},
		"told-panics": {shaper.StateDead, retries("false no luck")},
		"told-goexit": {shaper.StateDead, retries("false no luck")},
	} {
		job := b.wait(what, b.offer(what, 1))
		mu.Lock()
		if job.State != tc.state || !slices.Equal(got[what], tc.want) {
			t.Errorf("%s: %s, told %q; want %s and %q", what, job.State, got[what], tc.state, tc.want)
		}
		mu.Unlock()
	}
}

// TestRetryDelayFunc: it takes the place of the policy's backoff, and may panic or answer nonsense.
func TestRetryDelayFunc(t *testing.T) {
	t.Parallel()
	const delay = 300 * time.Millisecond
	var mu sync.Mutex
	var asked []string
	starts := map[int]time.Time{} // by how often it was retried before
	b := newBench(t, func(ctx context.Context, _ *asynq.Task) error {
		mu.Lock()
		defer mu.Unlock()
		n, _ := asynq.GetRetryCount(ctx)
		starts[n] = time.Now()
		return errors.New("no luck")
	}, Config{RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, fmt.Sprint(n, " ", err, " ", string(task.Payload())))
		switch string(task.Payload()) {
		case "panics":
			panic("in RetryDelayFunc")
		case "negative":
			return -time.Hour
		}
		return delay
	}})
	b.policy(quick)
	b.start()
	for _, what := range []string{"delayed", "panics", "negative"} {
		mu.Lock()
		clear(starts)
		asked = nil
		mu.Unlock()
		if job := b.wait(what, b.offer(what, 1)); job.State != shaper.StateDead || job.Charged != 3 {
			t.Fatalf("%+v, want it dead after three attempts", job)
		}
		want := []string{"0 no luck " + what, "1 no luck " + what, "2 no luck " + what}
		mu.Lock()
		if !slices.Equal(asked, want) {
			t.Errorf("asked %q, want %q", asked, want)
		}
		for n := 1; n < 3 && what == "delayed"; n++ {
			if gap := starts[n].Sub(starts[n-1]); gap < delay {
				t.Errorf("retry %d came after %v, want %v", n, gap, delay)
			}
		}
		mu.Unlock()
	}
}

// TestErrorsThatAreNoFailures leave a job its attempts, as in asynq; but not for ever.
func TestErrorsThatAreNoFailures(t *testing.T) {
	t.Parallel()
	notYet := errors.New("not yet")
	var mu sync.Mutex
	starts := map[string][]int{}
	b := newBench(t, func(ctx context.Context, task *asynq.Task) error {
		mu.Lock()
		defer mu.Unlock()
		what := string(task.Payload())
		retried, _ := asynq.GetRetryCount(ctx)
		starts[what] = append(starts[what], retried)
		switch {
		case what == "never":
			return fmt.Errorf("%w: %w", notYet, asynq.SkipRetry)
		case what == "panics":
			return errors.New("panic")
		case what == "mixed" && len(starts[what]) == 3:
			return errors.New("failure")
		case what == "mixed" && len(starts[what]) == 6:
			return nil
		}
		return notYet
	}, Config{IsFailure: func(err error) bool {
		if err.Error() == "panic" {
			panic("in IsFailure")
		}
		return !errors.Is(err, notYet)
	}})
	p := quick
	p.MaxAttempts, p.MaxThrottles = 2, 7
	b.policy(p)
	b.start()
	for what, tc := range map[string]struct {
		state  shaper.State
		starts []int // how often it was retried, as asynq tells at each
	}{
		"mixed":  {shaper.StateDone, []int{0, 0, 0, 1, 1, 1}},
		"always": {shaper.StateDead, []int{0, 0, 0, 0, 0, 0, 0}},
		"never":  {shaper.StateDead, []int{0}},
		"panics": {shaper.StateDead, []int{0, 1}},
	} {
		job := b.wait(what, b.offer(what, 1))
		mu.Lock()
		if job.State != tc.state || !slices.Equal(starts[what], tc.starts) {
			t.Errorf("%s: %s, started with %v; want %s and %v", what, job.State, starts[what], tc.state, tc.starts)
		}
		mu.Unlock()
	}
}

// TestBaseContext: its values are a handler's, its end ends a handler that runs, and a context that
// cannot be had is an error of the job.
func TestBaseContext(t *testing.T) {
	type key struct{}
	base, end := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	closing := errors.New("closing down")
	var how atomic.Value
	how.Store("good")
	causes := make(chan error, 1)
	b := newBench(t, func(ctx context.Context, task *asynq.Task) error {
		info, ok := JobFrom(ctx)
		if ctx.Value(key{}) != "value" || !ok || info.ID == "" {
			return fmt.Errorf("value %v, job %+v: %w", ctx.Value(key{}), info, asynq.SkipRetry)
		}
		if string(task.Payload()) == "ends" {
			end(closing)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}
		return nil
	}, Config{BaseContext: func() context.Context {
		switch how.Load() {
		case "nil":
			return nil
		case "panic":
			panic("oh dear")
		}
		return base
	}})
	p := quick
	p.MaxAttempts = 1
	b.policy(p)
	b.start()
	for _, tc := range []struct {
		how, tenant string
		state       shaper.State
		err         string
	}{
		{"good", "works", shaper.StateDone, ""},
		{"nil", "nil", shaper.StateDead, "BaseContext returned nil: want a context"},
		{"panic", "panics", shaper.StateDead, "BaseContext panicked: oh dear"},
		{"good", "ends", shaper.StateDead, context.Canceled.Error()},
	} {
		how.Store(tc.how)
		if job := b.wait(tc.tenant, b.offer(tc.tenant, 1)); job.State != tc.state || job.Error != tc.err {
			t.Errorf("%s: %s, %q; want %s, %q", tc.tenant, job.State, job.Error, tc.state, tc.err)
		}
	}
	if cause := <-causes; cause != closing {
		t.Errorf("its context ended by %v, want %v", cause, closing)
	}
}

// TestErrorHandlersThatAreNil are refused: they would panic at the first error.
func TestErrorHandlersThatAreNil(t *testing.T) {
	b := newBench(t, func(context.Context, *asynq.Task) error { return nil }, Config{})
	_, err := New(b.rdb, "d", b.pool.handler, Config{ErrorHandler: asynq.ErrorHandlerFunc(nil)})
	var field *shaper.FieldError
	if !errors.As(err, &field) || field.Field != "ErrorHandler" {
		t.Errorf("got %v, want an error that names ErrorHandler", err)
	}
}
