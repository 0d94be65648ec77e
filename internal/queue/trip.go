package queue

import (
	"sync"
	"time"
)

// Trip is how long a round trip to Redis takes at present. It soon follows a shorter one, and a
// longer one only if that stays, so a call that was held up does not count. The zero value knows of
// none. It is safe for concurrent use.
type Trip struct {
	mu    sync.Mutex
	takes time.Duration
}

// Note notes what a call took.
func (t *Trip) Note(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.takes == 0:
		t.takes = took
	case took < t.takes:
		t.takes -= (t.takes - took) / 2
	default:
		t.takes += (took - t.takes) / 8
	}
}

// Takes returns it in whole ms: what is shorter than one makes no difference to anybody, and nothing
// is written anew at each call.
func (t *Trip) Takes() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takes.Truncate(time.Millisecond)
}
