package buckets

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

func (c *combiner) busy() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight + len(c.waiting)
}

// Calls that share a script are each for themselves: in order, with their own cost, and
// one broken key fails alone.
func TestCombinedCalls(t *testing.T) {
	for name, client := range map[string]*redis.Client{"redis": redistest.Start(t).Client(), "miniredis": redistest.Mini(t)} {
		for _, params := range slow() {
			ctx := context.Background()
			l := onServerTime(t, client, params)
			p := l.plan.Load()
			client.SAdd(ctx, l.Key("broken"), "not ours")
			var batch []*waiter
			calls := []struct {
				key       string
				n         int64
				ok        bool
				remaining int64
			}{
				{"a", 3, true, 2},
				{"b", 1, true, 4},
				{"broken", 1, false, 0},
				{"a", 3, false, 2}, // sees what the first took
				{"a", 0, true, 2},
				{"a", 2, true, 0},
				{"b", 6, false, 4}, // can never pass
			}
			for _, c := range calls {
				batch = append(batch, &waiter{ctx: ctx, key: l.Key(c.key), args: p.args(c.n), done: make(chan struct{})})
			}
			l.combiner.inFlight++
			l.combiner.send(batch)
			for i, c := range calls {
				<-batch[i].done
				reply, err := batch[i].answer()
				if c.key == "broken" {
					if !errors.Is(err, ErrStore) {
						t.Errorf("%s, %s: the broken key: %v, %v", name, params.Algorithm, reply, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%s, %s, call %d: %v", name, params.Algorithm, i, err)
				}
				if d, _ := p.finish(reply, c.n); d.Allowed != c.ok || d.Remaining != c.remaining {
					t.Errorf("%s, %s, call %d: %+v, want %v with %d left", name, params.Algorithm, i, d, c.ok, c.remaining)
				}
			}
			if n := l.combiner.busy(); n != 0 {
				t.Errorf("%s, %s: %d calls are still counted", name, params.Algorithm, n)
			}
		}
	}
}

// While Redis hangs each caller leaves at its own deadline, and when it is back the
// places of those calls are free again.
func TestCombinedCallsOfAServerThatHangs(t *testing.T) {
	server := redistest.Start(t)
	l := onServerTime(t, server.Client(), slow()[0])
	if _, err := l.Allow(context.Background(), "other"); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer cancel()
			if d, err := l.Allow(ctx, "k"); !errors.Is(err, ErrStore) || d != (Decision{}) {
				t.Errorf("a server that hangs: %+v, %v", d, err)
			}
		})
	}
	wg.Wait()
	server.Continue()
	if d, err := l.Allow(context.Background(), "new"); err != nil || !d.Allowed {
		t.Errorf("after it came back: %+v, %v", d, err)
	}
}

func TestLatestDeadline(t *testing.T) {
	soon, cancel := context.WithDeadline(context.Background(), time.Unix(1000, 0))
	defer cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(2000, 0))
	defer cancel()
	ctx, cancel := latest([]*waiter{{ctx: soon}, {ctx: late}, {ctx: soon}})
	defer cancel()
	if d, ok := ctx.Deadline(); !ok || !d.Equal(time.Unix(2000, 0)) {
		t.Errorf("deadline %v, %v", d, ok)
	}
	ctx, cancel = latest([]*waiter{{ctx: soon}, {ctx: context.Background()}})
	defer cancel()
	if d, ok := ctx.Deadline(); ok {
		t.Errorf("deadline %v where one call has none", d)
	}
}
