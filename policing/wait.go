package policing

import (
	"context"
	"sync"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/again"
)

// Waiter makes callers wait until a Checker lets them pass, first come first served for each
// subject within the process: a small request does not overtake a large one. Subjects do not wait
// for each other. A Waiter with nothing but a Checker set is usable. It is safe for concurrent use.
type Waiter struct {
	Checker Checker

	mu    sync.Mutex
	lines map[Subject]*line
}

// line is who waits for a subject: one at its head, who asks, and others behind.
type line struct{ waiting []chan struct{} }

// Wait blocks until a request of weight n of the subject passes, and returns the Verdict.
//
// Where no wait can help, or the context's deadline would pass before the wait is over, it returns
// the refusal at once, without an error. It returns an error when the context ends while it waits,
// or when the Checker returns one. Nothing is taken unless the Verdict says Allowed.
func (w *Waiter) Wait(ctx context.Context, subject Subject, n int64) (Verdict, error) {
	if err := w.enter(ctx, subject); err != nil {
		return Verdict{}, err
	}
	defer w.leave(subject)
	pause := again.Pause{First: time.Millisecond, Most: time.Second}
	for tries := 0; ; tries++ {
		v, err := w.Checker.Check(ctx, subject, n)
		if err != nil || v.Allowed || v.RetryAfter == buckets.Never {
			return v, err
		}
		wait := v.RetryAfter
		if tries > 0 { // callers in other processes come back at the same instant
			wait = pause.Next(wait)
		}
		if deadline, ok := ctx.Deadline(); ok {
			left := time.Until(deadline)
			if left < v.RetryAfter {
				return v, nil
			}
			if left < wait {
				wait = v.RetryAfter
			}
		}
		if !again.Sleep(ctx, wait) {
			return Verdict{}, ctx.Err()
		}
	}
}

// enter returns at the head of the subject's line.
func (w *Waiter) enter(ctx context.Context, subject Subject) error {
	w.mu.Lock()
	if w.lines == nil {
		w.lines = map[Subject]*line{}
	}
	l := w.lines[subject]
	if l == nil {
		w.lines[subject] = &line{}
		w.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	w.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range l.waiting {
		if other == turn {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return ctx.Err()
		}
	}
	w.nextLocked(subject) // the turn came at the same moment: hand it on
	return ctx.Err()
}

// leave lets the next one come to the head.
func (w *Waiter) leave(subject Subject) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nextLocked(subject)
}

// nextLocked gives the head of the line to who has waited longest. w.mu must be held.
func (w *Waiter) nextLocked(subject Subject) {
	l := w.lines[subject]
	if len(l.waiting) == 0 {
		delete(w.lines, subject)
		return
	}
	close(l.waiting[0])
	l.waiting = l.waiting[1:]
}
