package migration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
)

var errBusy = errors.New("the mail server is busy")

// mail is a service that was written for asynq. It tells what happens to it.
type mail struct{ tell func(string) }

// mux is the same before and after.
func (m mail) mux() *asynq.ServeMux {
	mux := asynq.NewServeMux()
	mux.Use(m.log)
	mux.HandleFunc("mail:send", m.send)
	return mux
}

func (m mail) log(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		retried, _ := asynq.GetRetryCount(ctx)
		most, _ := asynq.GetMaxRetry(ctx)
		m.tell(fmt.Sprintf("%s %s of %s, retry %d of %d", task.Type(), id, queue, retried, most))
		return next.ProcessTask(ctx, task)
	})
}

type attempts struct{} // the key of a counter that BaseContext brings

// send finds the mail server busy at first, and then fails once.
func (m mail) send(ctx context.Context, task *asynq.Task) error {
	n := ctx.Value(attempts{}).(*int)
	*n++
	if *n == 1 {
		return errBusy
	}
	if retried, _ := asynq.GetRetryCount(ctx); retried == 0 {
		panic("no such mailbox, yet")
	}
	_, err := task.ResultWriter().Write([]byte("sent to " + string(task.Payload())))
	return err
}

func (m mail) report(ctx context.Context, _ *asynq.Task, err error) {
	id, _ := asynq.GetTaskID(ctx)
	m.tell(fmt.Sprintf("%s failed: panic %v, busy %v", id, asynq.IsPanicError(err), errors.Is(err, errBusy)))
}

func isFailure(err error) bool { return !errors.Is(err, errBusy) }

func retryDelay(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond }
