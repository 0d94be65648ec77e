package queue

import (
	"sync"
	"time"
)

// taking is how long something takes at present.
type taking struct {
	mu    sync.Mutex
	takes time.Duration
}

// Takes returns it in whole ms: what is shorter than one makes no difference to anybody, and nothing
// is written anew at each call.
func (t *taking) Takes() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takes.Truncate(time.Millisecond)
}

// Trip is how long a round trip to Redis takes at present. It soon follows a shorter one, and a
// longer one only if that stays, so a call that was held up does not count. The zero value knows of
// none. It is safe for concurrent use.
type Trip struct{ taking }

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

// Delay is how long something takes at present that may come before a call. It follows a longer one
// at once, since what is not waited for is late, and a shorter one slowly. The zero value knows of
// none. It is safe for concurrent use.
type Delay struct{ taking }

// Note notes what it took; 0 = it was not necessary.
func (d *Delay) Note(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takes = max(took, d.takes-(d.takes-took)/8)
}
