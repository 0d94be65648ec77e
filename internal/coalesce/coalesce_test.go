package coalesce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/redistest"
)

var echo = redis.NewScript(`return ARGV[1]`)

// Every caller gets the reply to its own call, however the calls were batched, and a script that the server has
// forgotten is loaded again.
func TestOwnReply(t *testing.T) {
	rdb := redistest.Open(t)
	c := New(rdb)
	ctx := context.Background()
	for round := range 3 {
		if round == 1 {
			rdb.ScriptFlush(ctx)
		}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				want := fmt.Sprint(round, i)
				if got, err := echo.Run(ctx, c, nil, want).Text(); err != nil || got != want {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
			})
		}
		wg.Wait()
	}
	if c.flying != 0 || len(c.waiting) != 0 {
		t.Errorf("%d flying, %d waiting after the last call", c.flying, len(c.waiting))
	}
}

// gate is a client whose calls wait until they are let go.
type gate struct {
	redis.UniversalClient
	entered, let chan struct{}
}

func (g *gate) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	g.entered <- struct{}{}
	<-g.let
	return g.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// A caller whose context ends while it waits returns, and the others are served.
func TestCancelled(t *testing.T) {
	g := &gate{redistest.Open(t), make(chan struct{}, 8), make(chan struct{})}
	c := New(g)
	var wg sync.WaitGroup
	for range inFlight {
		wg.Go(func() { c.EvalSha(context.Background(), echo.Hash(), nil, "x") })
	}
	for range inFlight {
		<-g.entered // both places are taken, so that the next call waits
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.EvalSha(ctx, echo.Hash(), nil, "y").Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	wg.Go(func() {
		if got, err := echo.Run(context.Background(), c, nil, "z").Text(); err != nil || got != "z" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	close(g.let)
	wg.Wait()
	if c.flying != 0 || len(c.waiting) != 0 {
		t.Errorf("%d flying, %d waiting after the last call", c.flying, len(c.waiting))
	}
}
