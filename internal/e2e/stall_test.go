package e2e

import (
	"sync/atomic"
	"testing"
	"time"
)

// stalls measures how long this machine keeps a process from running that wants to, at worst. Some promises are exact
// only where workers come to their slots in time: a slot that was missed is gone, by design.
type stalls struct{ worst atomic.Int64 }

// watch measures until the test ends.
func watch(t *testing.T) *stalls {
	s := &stalls{}
	quit, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(quit); <-done })
	go func() {
		defer close(done)
		const tick = time.Millisecond
		for {
			begun := time.Now()
			select {
			case <-quit:
				return
			case <-time.After(tick):
			}
			s.worst.Store(max(s.worst.Load(), int64(time.Since(begun)-tick)))
		}
	}()
	return s
}

func (s *stalls) longest() time.Duration { return time.Duration(s.worst.Load()) }

// calm tells whether the machine let everybody run within half the time that the tests' tolerance and lead leave.
func (s *stalls) calm() bool { return s.longest() < 8*time.Millisecond }
