package buckets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bounds of a combiner.
const (
	maxInFlight = 2  // scripts of one limiter under way at a time
	maxCombined = 64 // requests in a script, some 0.4 ms of Redis' time
)

// combiner lets many goroutines share scripts. While fewer than maxInFlight are under
// way a call is sent at once, alone; otherwise it waits for one of them to come back and
// goes out with all that wait, in one script, in order. So a caller that is alone pays
// nothing, and many pay a fraction of a round trip each.
//
// A script's deadline is the latest of its callers'; each caller leaves at its own.
type combiner struct {
	client redis.UniversalClient
	script script

	mu       sync.Mutex
	inFlight int
	waiting  []*waiter
}

// waiter is a call that is not sent alone. reply and err are set before done is closed.
type waiter struct {
	ctx   context.Context
	key   string
	args  []any
	done  chan struct{}
	reply any
	err   error
}

// do runs the script for one key, whose arguments are args.
func (c *combiner) do(ctx context.Context, key string, args []any) ([]any, error) {
	c.mu.Lock()
	if c.inFlight < maxInFlight {
		c.inFlight++
		c.mu.Unlock()
		defer c.next()
		return eval(ctx, c.client, c.script, []string{key}, append(append(make([]any, 0, 1+scriptArgs), ""), args...))
	}
	w := &waiter{ctx: ctx, key: key, args: args, done: make(chan struct{})}
	c.waiting = append(c.waiting, w)
	c.mu.Unlock()

	select {
	case <-w.done:
		return w.answer()
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if i := slices.Index(c.waiting, w); i >= 0 {
			c.waiting = slices.Delete(c.waiting, i, i+1) // never sent
		}
		return nil, fmt.Errorf("%w: %w", ErrStore, ctx.Err())
	}
}

func (w *waiter) answer() ([]any, error) {
	switch row := w.reply.(type) {
	case []any:
		return row, w.err
	case string:
		return nil, fmt.Errorf("%w: %w", ErrStore, rowError(row))
	}
	if w.err == nil {
		w.err = fmt.Errorf("%w: script answered %T, want a list", ErrStore, w.reply)
	}
	return nil, w.err
}

// rowError is what Redis said of one request among several: the same as it would have said of it alone.
type rowError string

func (e rowError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (e rowError) RedisError() {}

// next is called when a script has come back: its place goes to those who wait.
func (c *combiner) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.waiting), maxCombined)
	if n == 0 {
		c.inFlight--
		return
	}
	batch := slices.Clone(c.waiting[:n])
	c.waiting = slices.Delete(c.waiting, 0, n)
	go c.send(batch) // ends with the script, at the latest at its deadline or the client's timeout
}

// send runs one script for a batch and wakes all who wait for it.
func (c *combiner) send(batch []*waiter) {
	defer c.next()
	ctx, cancel := latest(batch)
	defer cancel()
	keys := make([]string, len(batch))
	args := append(make([]any, 0, 1+len(batch)*scriptArgs), "")
	for i, w := range batch {
		keys[i] = w.key
		start := len(args)
		args = append(args, w.args...)
		if len(batch) > 1 {
			args = pad(args, start)
		}
	}
	reply, err := eval(ctx, c.client, c.script, keys, args)
	if err == nil && len(batch) > 1 && len(reply) != len(batch) {
		err = errors.Join(ErrStore, fmt.Errorf("script answered %d rows, want %d", len(reply), len(batch)))
	}
	for i, w := range batch {
		switch {
		case err != nil:
			w.err = err
		case len(batch) == 1:
			w.reply = reply
		default:
			w.reply = reply[i]
		}
		close(w.done)
	}
}

// latest returns a context that ends with the last deadline of the batch, if all have one.
func latest(batch []*waiter) (context.Context, context.CancelFunc) {
	// Values are those of the first: tracing of a script can only have one parent.
	ctx := context.WithoutCancel(batch[0].ctx)
	var end time.Time
	for _, w := range batch {
		d, ok := w.ctx.Deadline()
		if !ok {
			return ctx, func() {}
		}
		if d.After(end) {
			end = d
		}
	}
	return context.WithDeadline(ctx, end)
}
