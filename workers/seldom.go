package workers

import (
	"sync"
	"time"
)

// seldom counts what may happen thousands of times a second, so that it fills no log. The zero
// value is ready; it is safe for concurrent use.
type seldom struct {
	mu    sync.Mutex
	count int
	next  time.Time // when it may be told again
}

// seldomEvery is the least time from line to line.
const seldomEvery = 5 * time.Second

// note counts one more. Where ok, it is time to tell of it, and n is how many there were since the
// last time.
func (s *seldom) note(now time.Time) (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if now.Before(s.next) {
		return 0, false
	}
	n, s.count, s.next = s.count, 0, now.Add(seldomEvery)
	return n, true
}
