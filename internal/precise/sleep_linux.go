package precise

import (
	"time"

	"golang.org/x/sys/unix"
)

// spin is how long before the deadline a waiter wakes to watch the clock: longer than an idle
// machine is usually late to wake, and short enough that 100 starts a second cost a core some two
// percent.
const spin = 200 * time.Microsecond

// sleep blocks this thread for about d. It may return early: signals interrupt it,
// and the runtime sends those to preempt goroutines.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil); err != nil && err != unix.EINTR {
		time.Sleep(d) // a sandbox forbids the call; be late rather than spin
	}
}
