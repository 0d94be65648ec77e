package buckets

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// Calls that share a script are each for themselves: in order, with their own cost, and
// one broken key fails alone.
func TestCombinedCalls(t *testing.T) {
	for name, client := range map[string]*redis.Client{"redis": redistest.Start(t).Client(), "miniredis": redistest.Mini(t)} {
		for _, params := range slow() {
			ctx := context.Background()
			l := onServerTime(t, client, params)
			p := l.plan.Load()
			client.SAdd(ctx, l.Key("broken"), "not ours")
			var batch []request
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
				batch = append(batch, request{l.Key(c.key), p.args(c.n)})
			}
			answers := l.takeEach(ctx, batch)
			for i, c := range calls {
				reply, err := answers[i].row, answers[i].err
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
		}
	}
}

// While Redis hangs each caller leaves when its own context ends, whatever the others', and when
// it is back the places of those calls are free again.
func TestCombinedCallsOfAServerThatHangs(t *testing.T) {
	server := redistest.Start(t)
	l := onServerTime(t, server.Client().WithTimeout(testenv.Patience), slow()[0])
	if _, err := l.Allow(context.Background(), "other"); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	patient := make(chan error, 1)
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
	go func() {
		_, err := l.Allow(context.Background(), "k")
		patient <- err
	}()
	wg.Wait()
	server.Continue()
	if err := <-patient; err != nil {
		t.Errorf("one who waited until it was back: %v", err)
	}
	if d, err := l.Allow(context.Background(), "new"); err != nil || !d.Allowed {
		t.Errorf("after it came back: %+v, %v", d, err)
	}
}
