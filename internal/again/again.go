// Package again says when to ask again: not before the answer says that it makes sense, less and
// less often if the answer does not say, and not at the same time as everybody else.
package again

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pause is how long to wait before each try of one thing. Its fields must be set before the first.
// It is for one goroutine.
type Pause struct {
	First time.Duration // after the first try, if the answer says nothing
	Most  time.Duration // it grows up to here

	next time.Duration // 0 = First
}

// Next returns how long to wait now: told (0 or less = nothing was told) or the pause, whichever is
// longer. The pause grows by half each time. A random addition, up to a quarter of the wait and of
// Most, keeps apart those who were told the same.
func (p *Pause) Next(told time.Duration) time.Duration {
	if p.next == 0 {
		p.next = p.First
	}
	d := max(told, p.next)
	p.next = min(p.next*3/2, p.Most)
	return d + rand.N(max(min(d, p.Most)/4, 1))
}

// Reset makes the pause short again. It is for an answer that shows progress.
func (p *Pause) Reset() { p.next = 0 }

// Wait waits as long as Next says; false if ctx ended first.
func (p *Pause) Wait(ctx context.Context, told time.Duration) bool { return Sleep(ctx, p.Next(told)) }

// Sleep waits for d; false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
