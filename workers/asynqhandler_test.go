package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/shaper"
)

// told is what asynq tells a handler of its task.
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

// TestAsynqHandlersRunAsTheyAre: a handler and a middleware that were written for asynq's server find all that they ask it for, at the
// start that a ticket brings and at those that are chained to it.
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
		_, err := b.client.Enqueue(t.Context(), "acme", task, asynq.TaskID(id), asynq.MaxRetry(3+i))
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
