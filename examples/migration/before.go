package migration

import (
	"context"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

func before(ctx context.Context, rdb redis.UniversalClient, m mail) error {
	base := context.WithValue(context.Background(), attempts{}, new(int))
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency:              8,
		Queues:                   map[string]int{"acme": 1, "zenith": 1},
		BaseContext:              func() context.Context { return base },
		ErrorHandler:             asynq.ErrorHandlerFunc(m.report),
		IsFailure:                isFailure,
		RetryDelayFunc:           retryDelay,
		DelayedTaskCheckInterval: time.Second,
	})
	if err := server.Start(m.mux()); err != nil {
		return err
	}
	defer server.Shutdown()

	client := asynq.NewClientFromRedisClient(rdb)
	task := asynq.NewTask("mail:send", []byte("ann"))
	_, err := client.EnqueueContext(ctx, task, asynq.Queue("acme"),
		asynq.TaskID("mail-1"), asynq.MaxRetry(3), asynq.Timeout(time.Minute), asynq.Retention(time.Hour))
	if err != nil {
		return err
	}

	<-ctx.Done()
	return nil
}
