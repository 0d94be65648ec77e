package shaper

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/faultproxy"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// While Redis hangs, each of many callers that share calls returns at its own deadline: the store
// failed, and whether the call took effect is unknown. Those that can wait get their answer when
// Redis is back. Here nothing but the callers' contexts ends a wait before the test gives up.
func TestEachCallerLeavesAtItsOwnTime(t *testing.T) {
	server := redistest.Start(t)
	proxy, err := faultproxy.Start(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	opts := *server.Client().Options()
	opts.Addr, opts.ReadTimeout = proxy.Addr(), 2*testenv.Patience
	rdb := redis.NewClient(&opts)
	t.Cleanup(func() { _ = rdb.Close() })

	const callers = 100
	w := newWorld(t, rdb)
	w.set("a", Policy{MaxInFlight: callers, Rate: buckets.PerSecond(1000)})
	w.pool("p", callers)
	offerN(w, callers)
	running := make([]*queue.Grant, callers)
	for i := range running {
		running[i] = w.start()
	}
	for _, call := range []struct {
		name string
		do   func(ctx context.Context, i int) error
	}{
		{"offer", func(ctx context.Context, i int) error {
			r, err := w.client.Offer(ctx, Spec{Tenant: "b", ID: fmt.Sprint("b", i), Type: "test"})
			if err == nil && r.Status != Accepted {
				err = fmt.Errorf("refused: %+v", r)
			}
			return err
		}},
		{"finish", func(ctx context.Context, i int) error {
			_, err := w.gate.Finish(ctx, running[i], queue.Finish{Ending: queue.EndOK})
			return err
		}},
	} {
		t.Run(call.name, func(t *testing.T) {
			proxy.Stall()
			var hurried, patient sync.WaitGroup
			for i := range callers {
				if i == callers/2 { // the first calls are those of callers in a hurry, and on their way
					for begun := time.Now(); rdb.PoolStats().TotalConns == rdb.PoolStats().IdleConns; runtime.Gosched() {
						if time.Since(begun) > testenv.Patience {
							t.Fatal("no call is on its way")
						}
					}
				}
				if i > callers/2 && i%4 == 0 {
					patient.Go(func() {
						if err := call.do(t.Context(), i); err != nil {
							t.Errorf("one who can wait: %v", err)
						}
					})
					continue
				}
				hurried.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					if err := call.do(ctx, i); !errors.Is(err, ErrStore) || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want %v of the store", err, context.DeadlineExceeded)
					}
				})
			}
			left := make(chan struct{})
			go func() {
				hurried.Wait()
				close(left)
			}()
			select {
			case <-left:
			case <-time.After(testenv.Patience):
				t.Error("some callers still wait although their contexts have ended")
			}
			proxy.Flow()
			hurried.Wait()
			patient.Wait()
		})
	}
}
