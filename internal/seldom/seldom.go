// Package seldom keeps what may happen thousands of times a second from filling the log.
package seldom

import (
	"sync"
	"time"
)

// Counter counts what happens, and says when it is time to log that. The zero value is ready, and
// never makes anybody wait; it is safe for concurrent use.
type Counter struct {
	Every time.Duration // the shortest time between two lines

	mu    sync.Mutex
	count int
	next  time.Time // when it may be logged again
}

// Note counts one more. If ok, it is time to log it, and n is how many there were since the last
// time.
func (c *Counter) Note(now time.Time) (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	if now.Before(c.next) {
		return 0, false
	}
	n, c.count, c.next = c.count, 0, now.Add(c.Every)
	return n, true
}
