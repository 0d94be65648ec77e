package policing

import (
	"sync"
	"time"
)

const (
	breakAfter = 3                      // failures in a row open a breaker
	breakFor   = 250 * time.Millisecond // and how long until a call may try again
)

// breaker spares calls the wait for a store that is away. Closed, it lets all through,
// until breakAfter calls in a row have failed. Open, it lets none through for breakFor;
// then half-open, one at a time, whose success closes it and whose failure opens it for
// breakFor again. The pause does not grow: so a store that is back is found within
// breakFor of the next call, and while it is away one caller in breakFor waits for it.
//
// The zero value is closed. Its methods take the instant, and may be called by many
// goroutines.
type breaker struct {
	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // closed when zero; else open before it, and half-open after
	probing  bool      // a call is under way that will decide
}

// pass is the leave to make one call, to be given back with its outcome.
type pass struct{ probe bool }

// enter reports whether a call may be made now.
func (b *breaker) enter(now time.Time) (pass, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return pass{}, true
	}
	if b.probing || now.Before(b.until) {
		return pass{}, false
	}
	b.probing = true
	return pass{probe: true}, true
}

// succeeded gives a pass back. Of calls that began before the breaker opened, and end
// after, no notice is taken.
func (b *breaker) succeeded(p pass) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.probe {
		b.until, b.probing = time.Time{}, false
	}
	if b.until.IsZero() {
		b.failures = 0
	}
}

// failed gives a pass back.
func (b *breaker) failed(p pass, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case p.probe:
		b.until, b.probing = now.Add(breakFor), false
	case b.until.IsZero():
		if b.failures++; b.failures >= breakAfter {
			b.until = now.Add(breakFor)
		}
	}
}

// returned gives a pass back of a call that says nothing about the store.
func (b *breaker) returned(p pass) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.probe {
		b.probing = false
	}
}

// wait returns how long until the store may be tried, and whether the breaker is closed.
func (b *breaker) wait(now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.until.Sub(now)), b.until.IsZero()
}
