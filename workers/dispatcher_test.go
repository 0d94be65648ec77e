package workers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestDispatchPutsEachTicketOnce: tickets whose reply was lost are put again, and count as put.
func TestDispatchPutsEachTicketOnce(t *testing.T) {
	server := redistest.Start(t)
	var delivered atomic.Int64
	d, err := NewDispatcher(server.Client(), "d", func() { delivered.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	tickets := []string{"a 1 1", "a 2 7", "b 1 1"}
	for _, list := range [][]string{tickets[:1], tickets, tickets} {
		if err := d.Dispatch(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	if n := delivered.Load(); n != 3 {
		t.Errorf("told %d times that tickets have arrived, want 3", n)
	}
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Addr: server.Addr()})
	defer inspector.Close()
	tasks, err := inspector.ListPendingTasks(asynqQueue("d"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, task := range tasks {
		got[string(task.Payload)] = true
		// asynq must neither give a ticket up when its worker vanishes, nor free a place by its own
		// time-out.
		if task.MaxRetry == 0 || task.Timeout.Hours() < 24 || task.Retention != 0 {
			t.Errorf("ticket %s: %d retries, time-out %v, retention %v", task.Payload, task.MaxRetry, task.Timeout, task.Retention)
		}
	}
	if len(tasks) != 3 || !got["a 1 1"] || !got["a 2 7"] || !got["b 1 1"] {
		t.Errorf("asynq has %v", got)
	}
}

func TestDispatchSaysWhatFailed(t *testing.T) {
	server := redistest.Start(t)
	d, err := NewDispatcher(server.Client(), "d", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Dispatch(ctx, []string{"a 1 1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if _, err := NewDispatcher(server.Client(), "no/name", nil); !errors.Is(err, shaper.ErrInvalid) {
		t.Errorf("got %v, want %v", err, shaper.ErrInvalid)
	}
}
