package workers

import (
	"sync"
	"time"
)

// seldom counts what may happen thousands of times a second, so that it does not fill the log. The
// zero value is ready; it is safe for concurrent use.
type seldom struct {
	mu    sync.Mutex
	count int
	next  time.Time // when it may be logged again
}

// seldomEvery is the shortest time between two lines.
const seldomEvery = 5 * time.Second

// note counts one more. If ok, it is time to log it, and n is how many there were since the last
// time.
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
