package migration

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

func after(ctx context.Context, rdb redis.UniversalClient, m mail) error {
	base := context.WithValue(context.Background(), attempts{}, new(int))
	pool, err := workers.New(rdb, "mailer", m.mux(), workers.Config{
		Concurrency:    8,
		BaseContext:    func() context.Context { return base },
		ErrorHandler:   asynq.ErrorHandlerFunc(m.report),
		IsFailure:      isFailure,
		RetryDelayFunc: retryDelay,
	})
	if err != nil {
		return err
	}
	if err := pool.Start(ctx); err != nil {
		return err
	}
	defer pool.Stop()
	dispatcher, err := workers.NewDispatcher(rdb, "mailer", pool.Ring)
	if err != nil {
		return err
	}
	scheduler, err := shaper.NewScheduler(rdb, "mailer", dispatcher, shaper.SchedulerOptions{})
	if err != nil {
		return err
	}
	if err := scheduler.Start(ctx); err != nil {
		return err
	}
	defer scheduler.Stop()

	client, err := shaper.NewClient(rdb, "mailer", shaper.ClientOptions{})
	if err != nil {
		return err
	}
	task := asynq.NewTask("mail:send", []byte("ann"))
	result, err := client.Enqueue(ctx, "acme", task,
		asynq.TaskID("mail-1"), asynq.MaxRetry(3), asynq.Timeout(time.Minute), asynq.Retention(time.Hour))
	if err != nil {
		return err
	}
	if result.Status == shaper.Refused { // the tenant's bucket is full: an answer, not an error
		return fmt.Errorf("refused: %s, try again in %v", result.Reason, result.RetryAfter)
	}

	<-ctx.Done()
	return nil
}
