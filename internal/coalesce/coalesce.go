// Package coalesce lets calls that are made at the same time share one.
//
// Why: with many callers the round trip, not the work, is what a call costs, on both sides (a write, a read and a wake-up
// each). The first caller goes at once; those who come while it is under way go together with the next of them. So a lone caller
// waits for nobody, and the busier it gets, the larger the batches.
package coalesce

import (
	"context"
	"sync"
)

// inFlight is how many batches of a group are under way at a time.
const inFlight = 2

// Group batches calls of one kind. It is safe for concurrent use and owns no goroutine: one of the callers does the work for
// the others. The order of concurrent calls is not kept.
type Group[In, Out any] struct {
	max int
	run func(ctx context.Context, batch []In) []Out

	mu      sync.Mutex // guards what follows
	waiting []*call[In, Out]
	flying  int
}

// New returns a Group whose batches hold at most max calls. run handles a batch and returns an answer for each call, in order, an
// error among them; its context carries no deadline of a single caller, so run bounds itself.
func New[In, Out any](max int, run func(ctx context.Context, batch []In) []Out) *Group[In, Out] {
	return &Group[In, Out]{max: max, run: run}
}

type call[In, Out any] struct {
	in   In
	out  Out
	turn chan bool // true: out is there; false: handle what is waiting, this call first
}

// Do has in handled and returns the answer. When ctx ends first it returns ctx's error; the call may then be made or not.
func (g *Group[In, Out]) Do(ctx context.Context, in In) (Out, error) {
	k := &call[In, Out]{in: in, turn: make(chan bool, 1)}
	g.mu.Lock()
	if g.flying < inFlight {
		g.flying++
		g.mu.Unlock()
		return g.lead(ctx, k)
	}
	g.waiting = append(g.waiting, k)
	g.mu.Unlock()
	select {
	case done := <-k.turn:
		if done {
			return k.out, nil
		}
		return g.lead(ctx, k)
	case <-ctx.Done():
		g.mu.Lock()
		for i, w := range g.waiting {
			if w == k {
				g.waiting = append(g.waiting[:i:i], g.waiting[i+1:]...)
				g.mu.Unlock()
				var none Out
				return none, ctx.Err()
			}
		}
		g.mu.Unlock()
		// Too late to withdraw: somebody handles it, or waits for this caller to take its turn.
		if done := <-k.turn; done {
			return k.out, nil
		}
		return g.lead(ctx, k)
	}
}

// lead handles k and those who wait, tells them, and gives the turn to one who came meanwhile.
func (g *Group[In, Out]) lead(ctx context.Context, k *call[In, Out]) (Out, error) {
	g.mu.Lock()
	n := min(len(g.waiting), g.max-1)
	batch := append([]*call[In, Out]{k}, g.waiting[:n]...)
	g.waiting = append([]*call[In, Out](nil), g.waiting[n:]...)
	g.mu.Unlock()

	in := make([]In, len(batch))
	for i, b := range batch {
		in[i] = b.in
	}
	if len(batch) > 1 {
		ctx = context.WithoutCancel(ctx) // one caller's end must not be the others'
	}
	out := g.run(ctx, in)

	g.mu.Lock()
	if len(g.waiting) > 0 {
		next := g.waiting[0]
		g.waiting = g.waiting[1:]
		next.turn <- false
	} else {
		g.flying--
	}
	g.mu.Unlock()
	for i, b := range batch[1:] {
		b.out = out[i+1]
		b.turn <- true
	}
	return out[0], nil
}
