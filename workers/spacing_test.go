package workers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

func TestSixtyAtOnce(t *testing.T) {
	rdb := redistest.Start(t).Client()
	ctx := context.Background()
	admin, _ := shaper.NewAdmin(rdb, "d")
	if err := admin.SetTenant(ctx, "a", shaper.Policy{Rate: buckets.PerSecond(10)}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var starts []time.Time
	done := make(chan struct{})
	h := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		mu.Lock()
		defer mu.Unlock()
		starts = append(starts, time.Now())
		if len(starts) == 60 {
			close(done)
		}
		return nil
	})
	p, err := New(rdb, "d", h, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	d, _ := NewDispatcher(rdb, "d", p.Ring)
	s, _ := shaper.NewScheduler(rdb, "d", d, shaper.SchedulerOptions{})
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	c, _ := shaper.NewClient(rdb, "d", shaper.ClientOptions{})
	for i := range 60 {
		r, err := c.Enqueue(ctx, "a", asynq.NewTask("x", []byte(fmt.Sprint(i))))
		if err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			t.Logf("%+v", r)
		}
	}
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		st, err := admin.Stats(ctx, true)
		t.Fatalf("%d starts; %+v %v", len(starts), st, err)
	}
	for i := 1; i < len(starts); i++ {
		gap := starts[i].Sub(starts[i-1])
		if gap < 80*time.Millisecond {
			t.Errorf("gap %d: %v", i, gap)
		}
		if i < 10 {
			t.Log(gap)
		}
	}
	t.Log(starts[59].Sub(starts[0]))
}
