package workers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// TestTicketsPassAFullStore: a Redis that takes no writes still takes a process' first ticket, and
// hands it to a worker. Only then can what is in the queue leave and make room.
func TestTicketsPassAFullStore(t *testing.T) {
	testenv.Long(t, "fills a store")
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t, redistest.Args("--maxmemory", "1mb", "--maxmemory-policy", "noeviction")).Client()
	fill := strings.Repeat("x", 100<<10)
	err := error(nil)
	for i := 0; err == nil; i++ {
		err = rdb.RPush(ctx, "fill", fill).Err()
	}
	if !strings.HasPrefix(err.Error(), "OOM") {
		t.Fatalf("got %v, want Redis to be full", err)
	}
	d, err := NewDispatcher(rdb, "d", nil)
	if err != nil {
		t.Fatal(err)
	}
	for id := range 2 { // with scripts unknown, and known
		if err := d.Dispatch(ctx, []string{fmt.Sprint("a ", id, " 1")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := rdb.ScriptFlush(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if err := d.Dispatch(ctx, []string{"a 2 1"}); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 3)
	server := asynq.NewServerFromRedisClient(newHeldClient(newDrainClient(rdb), asynqQueue("d"), newDoorbell(), func() int { return 1 }), asynq.Config{
		Concurrency: 1, Queues: map[string]int{asynqQueue("d"): 1}, TaskCheckInterval: pollBusy, LogLevel: asynq.FatalLevel,
	})
	err = server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		got <- string(task.Payload())
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	for _, want := range []string{"a 0 1", "a 1 1", "a 2 1"} {
		select {
		case ticket := <-got:
			if ticket != want {
				t.Errorf("got ticket %q, want %q", ticket, want)
			}
		case <-time.After(patience):
			t.Fatalf("no ticket within %v", patience)
		}
	}
	if n, err := rdb.SIsMember(ctx, "asynq:queues", asynqQueue("d")).Result(); err != nil || !n {
		t.Errorf("asynq does not know of the queue: %v %v", n, err)
	}
}
