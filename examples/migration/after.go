package migration

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper"
)

func after(ctx context.Context, rdb redis.UniversalClient, m mail) error {
	base := context.WithValue(context.Background(), attempts{}, new(int))
	queue, err := jobshaper.Open(rdb, "mailer", jobshaper.Config{
		Handler:        m.mux(),
		Concurrency:    8,
		BaseContext:    func() context.Context { return base },
		ErrorHandler:   asynq.ErrorHandlerFunc(m.report),
		IsFailure:      isFailure,
		RetryDelayFunc: retryDelay,
	})
	if err != nil {
		return err
	}
	if err := queue.Start(ctx); err != nil {
		return err
	}
	defer queue.Stop()

	task := asynq.NewTask("mail:send", []byte("ann"))
	result, err := queue.Enqueue(ctx, "acme", task,
		asynq.TaskID("mail-1"), asynq.MaxRetry(3), asynq.Timeout(time.Minute), asynq.Retention(time.Hour))
	if err != nil {
		return err
	}
	if result.Status == jobshaper.Refused { // the tenant's bucket is full: an answer, not an error
		return fmt.Errorf("refused: %s, try again in %v", result.Reason, result.RetryAfter)
	}

	<-ctx.Done()
	return nil
}
