package coalesce

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// Every caller gets the answer to its own call, however the calls were batched, and no batch is too large.
func TestOwnAnswer(t *testing.T) {
	var mu sync.Mutex
	batches := 0
	g := New(8, func(_ context.Context, batch []int) []int {
		if len(batch) > 8 {
			t.Errorf("a batch of %d", len(batch))
		}
		mu.Lock()
		batches++
		mu.Unlock()
		out := make([]int, len(batch))
		for i, v := range batch {
			out[i] = 2 * v
		}
		return out
	})
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			if got, err := g.Do(context.Background(), i); err != nil || got != 2*i {
				t.Errorf("got %d, %v, want %d", got, err, 2*i)
			}
		})
	}
	wg.Wait()
	if g.flying != 0 || len(g.waiting) != 0 {
		t.Errorf("%d flying, %d waiting after the last call", g.flying, len(g.waiting))
	}
	t.Logf("%d batches", batches)
}

// Those who come while the places are taken go together; who gives up meanwhile is not handled.
func TestTogether(t *testing.T) {
	entered, let := make(chan int, 16), make(chan struct{})
	var mu sync.Mutex
	var handled []int
	g := New(64, func(_ context.Context, batch []int) []int {
		entered <- len(batch)
		<-let
		mu.Lock()
		handled = append(handled, batch...)
		mu.Unlock()
		return batch
	})
	var wg sync.WaitGroup
	do := func(i int) {
		wg.Go(func() {
			if got, err := g.Do(context.Background(), i); err != nil || got != i {
				t.Errorf("got %d, %v, want %d", got, err, i)
			}
		})
	}
	for i := range inFlight {
		do(i)
		<-entered
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := g.Do(ctx, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	for i := range 10 {
		do(100 + i)
	}
	for { // until all ten wait
		g.mu.Lock()
		n := len(g.waiting)
		g.mu.Unlock()
		if n == 10 {
			break
		}
	}
	let <- struct{}{}
	if n := <-entered; n != 10 {
		t.Errorf("a batch of %d, want the ten that waited", n)
	}
	close(let)
	wg.Wait()
	for _, v := range handled {
		if v < 0 {
			t.Error("a call that was withdrawn was handled")
		}
	}
}
