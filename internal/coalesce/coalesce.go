// Package coalesce lets calls that are made at the same time go out as one.
//
// Why: with many callers the round trip, not the work, is what a call costs, on both sides (a
// write, a read and a wake-up each). A call that comes while few are under way goes at once; those
// that come when the places are taken go together, as the next batch. So a lone caller waits for
// nobody, and the busier it gets, the larger the batches.
package coalesce

import (
	"context"
	"slices"
	"sync"
	"time"
)

// inFlight is how many batches of a group are under way at a time.
const inFlight = 2

// Group batches calls of one kind. It is safe for concurrent use. It has a goroutine only for each
// shared batch: at most inFlight, and none once nobody waits.
type Group[In, Out any] struct {
	max int
	run func(ctx context.Context, batch []In) []Out

	mu      sync.Mutex // guards what follows
	waiting []*call[In, Out]
	flying  int
}

// New returns a Group whose batches hold at most max calls. run handles a batch and returns an
// answer for each call, in order; errors are part of the answers. The context of a batch of one is
// its caller's. That of several ends when all of them are gone, carries their latest deadline, if
// each has one, and has the values of the first. If a call may hang for longer than that, run must
// bound it.
func New[In, Out any](max int, run func(ctx context.Context, batch []In) []Out) *Group[In, Out] {
	return &Group[In, Out]{max: max, run: run}
}

type call[In, Out any] struct {
	ctx    context.Context
	in     In
	out    Out           // to be read once done is closed
	done   chan struct{} // closed when out is there
	flight *flight       // that of its batch; nil while it waits, and if it is the only one
}

// Do has in handled and returns the answer. If ctx ends while it waits for others, it returns ctx's
// error at once, whether or not the call is then made. A caller that is alone handles its call
// itself, since a goroutine would cost it a third more; how soon the end of ctx ends its wait is up
// to run. Calls that wait go in the order in which they came.
func (g *Group[In, Out]) Do(ctx context.Context, in In) (Out, error) {
	var none Out
	if err := ctx.Err(); err != nil {
		return none, err
	}
	g.mu.Lock()
	if g.flying < inFlight {
		g.flying++
		g.mu.Unlock()
		defer g.land()
		return g.run(ctx, []In{in})[0], nil
	}
	k := &call[In, Out]{ctx: ctx, in: in, done: make(chan struct{})}
	g.waiting = append(g.waiting, k)
	g.mu.Unlock()
	select {
	case <-k.done:
		return k.out, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-k.done: // at the same time
		return k.out, nil
	default:
	}
	if k.flight != nil {
		k.flight.leave()
	} else if i := slices.Index(g.waiting, k); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return none, ctx.Err()
}

// land hands the place of a caller that was alone to those who wait.
func (g *Group[In, Out]) land() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 {
		go g.fly()
	} else {
		g.flying--
	}
}

// fly handles batches until nobody waits.
func (g *Group[In, Out]) fly() {
	for batch := g.next(); len(batch) > 0; batch = g.next() {
		in := make([]In, len(batch))
		for i, k := range batch {
			in[i] = k.in
		}
		ctx, end := batch[0].ctx, func() {}
		if f := batch[0].flight; f != nil {
			ctx, end = f, f.cancel
		}
		out := g.run(ctx, in)
		end()
		for i, k := range batch {
			k.out = out[i]
			close(k.done)
		}
	}
}

// next takes those who wait on a flight; if there are none, the place becomes free.
func (g *Group[In, Out]) next() []*call[In, Out] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), g.max)
	if n == 0 {
		g.flying--
		return nil
	}
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	if n == 1 {
		return batch
	}
	f := &flight{aboard: n}
	f.Context, f.cancel = context.WithCancel(context.WithoutCancel(batch[0].ctx))
	for i, k := range batch {
		k.flight = f
		end, ok := k.ctx.Deadline()
		if i == 0 || !ok || !f.end.IsZero() && end.After(f.end) {
			f.end = end // the zero time where there is none, and so it stays
		}
	}
	return batch
}

// flight is the context of a batch.
type flight struct {
	context.Context
	cancel context.CancelFunc
	end    time.Time // the latest deadline of its callers; zero if one has none
	aboard int       // callers who wait for it; the group's mutex guards it
}

// Deadline implements context.Context. The context ends then only because the last of its callers
// leaves; the deadline is told because a connection heeds nothing else.
func (f *flight) Deadline() (time.Time, bool) { return f.end, !f.end.IsZero() }

func (f *flight) leave() {
	if f.aboard--; f.aboard == 0 {
		f.cancel()
	}
}
