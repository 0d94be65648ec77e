package coalesce

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Every caller gets the answer to its own call, however the calls were batched, and no batch is too
// large.
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
		return doubled(batch)
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
	until(t, g, "nothing is left", func() bool { return g.flying == 0 && len(g.waiting) == 0 })
	t.Logf("%d batches", batches)
}

func doubled(batch []int) []int {
	out := make([]int, len(batch))
	for i, v := range batch {
		out[i] = 2 * v
	}
	return out
}

// until waits for what happens within g.
func until(t *testing.T, g *Group[int, int], what string, happened func() bool) {
	t.Helper()
	for begun := time.Now(); ; runtime.Gosched() {
		g.mu.Lock()
		ok := happened()
		g.mu.Unlock()
		switch {
		case ok:
			return
		case time.Since(begun) > testenv.Patience:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// held is a group whose batches are held until the test lets them go.
type held struct {
	*Group[int, int]
	t       *testing.T
	entered chan batch
	callers sync.WaitGroup
	left    chan struct{} // hears of each caller that left without an answer
}

// batch is one that is under way.
type batch struct {
	ctx  context.Context
	in   []int
	done chan struct{} // closed by the test
}

func newHeld(t *testing.T) *held {
	h := &held{t: t, entered: make(chan batch, 16), left: make(chan struct{}, 100)}
	h.Group = New(64, func(ctx context.Context, in []int) []int {
		b := batch{ctx, in, make(chan struct{})}
		h.entered <- b
		<-b.done
		return doubled(in)
	})
	t.Cleanup(h.callers.Wait)
	return h
}

// do makes a call, which must end with want.
func (h *held) do(ctx context.Context, in int, want error) {
	h.callers.Go(func() {
		got, err := h.Do(ctx, in)
		if !errors.Is(err, want) || want == nil && got != 2*in || want != nil && got != 0 {
			h.t.Errorf("call %d: got %d, %v, want the error %v", in, got, err, want)
		}
		if err != nil {
			h.left <- struct{}{}
		}
	})
}

// fill takes all places, and returns the batches that have them.
func (h *held) fill() []batch {
	var batches []batch
	for i := range inFlight {
		h.do(context.Background(), i, nil)
		batches = append(batches, <-h.entered)
	}
	return batches
}

func (h *held) awaitWaiting(n int) {
	until(h.t, h.Group, "all wait", func() bool { return len(h.waiting) == n })
}

// Those who come while the places are taken go together, in the order in which they came; whoever
// gives up meanwhile is not handled.
func TestTogether(t *testing.T) {
	h := newHeld(t)
	places := h.fill()
	over, cancel := context.WithCancel(context.Background())
	h.do(over, -1, context.Canceled)
	h.awaitWaiting(1)
	for i := range 10 {
		h.do(context.Background(), 100+i, nil)
		h.awaitWaiting(2 + i)
	}
	cancel()
	h.awaitWaiting(10)
	h.do(over, -2, context.Canceled) // never asks
	close(places[0].done)
	b := <-h.entered
	for i, v := range b.in {
		if len(b.in) != 10 || v != 100+i {
			t.Fatalf("batch %v, want the ten that waited, in order", b.in)
		}
	}
	close(places[1].done)
	close(b.done)
}

// Each caller's own context ends its own wait, even that of the caller whose call began the batch,
// and that of one who is alone in a batch after waiting. The batch goes on for the others, until
// there are none.
func TestLeave(t *testing.T) {
	for _, callers := range []int{1, 2, 5} {
		h := newHeld(t)
		places := h.fill()
		var cancels []context.CancelFunc
		for i := range callers {
			ctx, cancel := context.WithCancel(context.Background())
			cancels = append(cancels, cancel)
			h.do(ctx, 100+i, context.Canceled)
			h.awaitWaiting(i + 1)
		}
		close(places[0].done)
		b := <-h.entered
		for i, cancel := range cancels {
			if b.ctx.Err() != nil {
				t.Errorf("%d callers: the batch's context has ended, after %d have left", callers, i)
			}
			cancel()
			<-h.left
		}
		<-b.ctx.Done()

		// While it hangs, whoever comes waits for the other place, and no longer than its context
		// allows.
		late, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		h.do(late, 5, context.DeadlineExceeded)
		<-h.left
		cancel()
		h.do(context.Background(), 6, nil)
		h.awaitWaiting(1)
		close(places[1].done)
		close((<-h.entered).done)
		close(b.done)
	}
}

// One who leaves takes nothing from those who stay.
func TestStay(t *testing.T) {
	h := newHeld(t)
	places := h.fill()
	ctx, cancel := context.WithCancel(context.Background())
	h.do(ctx, 100, context.Canceled)
	h.awaitWaiting(1)
	h.do(context.Background(), 101, nil)
	h.awaitWaiting(2)
	close(places[0].done)
	b := <-h.entered
	cancel()
	<-h.left
	if b.ctx.Err() != nil {
		t.Errorf("the context of a batch that somebody waits for has ended: %v", b.ctx.Err())
	}
	close(b.done)
	close(places[1].done)
}

// A batch has the latest deadline of its callers, and none where one of them has none: a connection
// heeds deadlines, and no other way in which a context ends. It has the values of the first.
func TestDeadlineOfABatch(t *testing.T) {
	type key struct{}
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), key{}, d), d)
		t.Cleanup(cancel)
		return ctx
	}
	soon, late, never := within(time.Hour), within(3*time.Hour), context.Background()
	end, _ := late.Deadline()
	for _, row := range []struct {
		name string
		of   []context.Context
		want time.Time
	}{
		{"all have one", []context.Context{soon, late, soon}, end},
		{"alone", []context.Context{late}, end},
		{"the first has none", []context.Context{never, soon, late}, time.Time{}},
		{"the second has none", []context.Context{soon, never, late}, time.Time{}},
		{"the last has none", []context.Context{soon, late, never}, time.Time{}},
	} {
		h := newHeld(t)
		places := h.fill()
		for i, ctx := range row.of {
			h.do(ctx, i, nil)
			h.awaitWaiting(i + 1)
		}
		close(places[0].done)
		b := <-h.entered
		got, ok := b.ctx.Deadline()
		if !got.Equal(row.want) || ok != !row.want.IsZero() {
			t.Errorf("%s: deadline %v, %v, want %v", row.name, got, ok, row.want)
		}
		if got, want := b.ctx.Value(key{}), row.of[0].Value(key{}); got != want {
			t.Errorf("%s: value %v, want %v", row.name, got, want)
		}
		close(b.done)
		close(places[1].done)
	}
}
