// Package breaker spares callers the wait for a store that is away.
package breaker

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	After = 3                      // failures in a row open a Breaker
	For   = 250 * time.Millisecond // and how long until a call may try again
)

// Breaker decides which calls are made. Closed, it lets all through, until After calls in a row
// have failed. Open, it lets none through for For; then, half-open, it lets through one at a time,
// whose success closes it and whose failure opens it for For again. The pause does not grow, so a
// store that is back is found within For of the next call, and while it is away one caller per For
// waits for it.
//
// The zero value is closed. Its methods take the current instant, and are safe for concurrent use.
type Breaker struct {
	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // closed when zero; else open before it, and half-open after
	probing  bool      // a call is under way that will decide
}

// Pass is permission to make one call, to be given back with the call's outcome.
type Pass struct{ probe bool }

// Enter reports whether a call may be made now.
func (b *Breaker) Enter(now time.Time) (Pass, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return Pass{}, true
	}
	if b.probing || now.Before(b.until) {
		return Pass{}, false
	}
	b.probing = true
	return Pass{probe: true}, true
}

// Succeeded gives a pass back. Calls that began before the breaker opened and end afterwards are
// ignored.
func (b *Breaker) Succeeded(p Pass) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.probe {
		b.until, b.probing = time.Time{}, false
	}
	if b.until.IsZero() {
		b.failures = 0
	}
}

// Failed gives a pass back, and reports whether this opened a breaker that was closed.
func (b *Breaker) Failed(p Pass, now time.Time) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case p.probe:
		b.until, b.probing = now.Add(For), false
	case b.until.IsZero():
		if b.failures++; b.failures >= After {
			b.until = now.Add(For)
			return true
		}
	}
	return false
}

// Returned gives a pass back of a call that says nothing about the store.
func (b *Breaker) Returned(p Pass) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.probe {
		b.probing = false
	}
}

// State returns how long until the store may be tried, and whether the breaker is closed.
func (b *Breaker) State(now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.until.Sub(now)), b.until.IsZero()
}

// Away reports whether an error of Redis says that Redis is away, or of no use to anybody. Any
// other answer, such as WRONGTYPE, is about the keys of one caller, and others must not pay for
// that.
func Away(err error) bool {
	var answer redis.Error
	if err == nil || !errors.As(err, &answer) {
		return err != nil
	}
	return slices.ContainsFunc(away, func(prefix string) bool { return redis.HasErrorPrefix(answer, prefix) })
}

var away = []string{"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "max number of clients reached"}
