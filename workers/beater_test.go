package workers

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// failures tells of each call of a command that failed.
type failures struct {
	of     string
	failed chan struct{}
}

func (f failures) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f failures) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && cmd.Name() == f.of {
			select {
			case f.failed <- struct{}{}:
			default:
			}
		}
		return err
	}
}

func (f failures) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// While Redis is away a pool tries to beat more often than it beats, since it may count as gone
// when Redis is back: otherwise it would be without work for up to a whole beat more.
func TestPoolIsSoonKnownAgain(t *testing.T) {
	testenv.Long(t, "lasts an outage")
	t.Parallel()
	server := redistest.Start(t)
	hook := failures{"hgetall", make(chan struct{}, 100)} // what a beat asks first, and nobody else here
	rdb, err := redisurl.Open(server.URL(), redisurl.Config{Hooks: []redis.Hook{hook}})
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	pool, err := New(rdb, "d", asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }),
		Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := pool.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer pool.Stop()
	server.Kill()
	const beats = 6
	var first time.Time
	for n := range beats {
		select {
		case <-hook.failed:
			if n == 0 {
				first = time.Now()
			}
		case <-time.After(patience):
			t.Fatalf("%d beats failed within %v, want %d", n, patience, beats)
		}
	}
	if took := time.Since(first); took >= (beats-1)*beatEvery {
		t.Errorf("%d beats after the one that failed took %v: no faster than beats that succeed", beats-1, took)
	}
	server.Restart() // it has forgotten the pool
	for begun := time.Now(); rdb.HLen(t.Context(), "shaper:{d}:pools").Val() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatal("the pool is not known again")
		}
	}
}
