// Package precise waits for an instant more exactly than a timer does, and never
// returns before it.
//
// Why: an otherwise idle Go process sleeps in epoll_wait, whose timeout is in
// whole milliseconds, so time.Sleep and timers wake up to a millisecond late. At
// 1000 starts a second that is the whole interval. A thread in clock_nanosleep
// wakes within some 60 to 200 µs, and one that looks at the clock over and over for
// that long does not need to wake.
package precise

import (
	"context"
	"sync/atomic"
	"time"
)

// spread is how long before the deadline the exact wait takes over from the timer.
// It is longer than a timer's usual lateness of at most a millisecond, and short
// enough that a cancelled caller, who cannot be woken from the exact wait, hardly
// notices.
const spread = 1500 * time.Microsecond

// spinner is set while a waiter looks at the clock over and over for the last of its
// wait. Only one does at a time: several would take the processor from each other, and
// from the handler that the first of them starts.
var spinner atomic.Bool

// SleepUntil blocks until the deadline, by the monotonic clock if the deadline has a reading of it
// (as time.Now().Add gives), and returns nil. It never returns nil early. How late it returns
// depends on the machine; there is no bound.
//
// When ctx ends first, SleepUntil returns ctx.Err(), at most 1.5 ms later. A
// deadline in the past is met at once, unless ctx has ended already.
//
// The last 1.5 ms occupy an OS thread (asleep, except that one waiter at a time is awake for the
// last 0.2 ms), so it suits a few hundred waiters near their deadlines, not a hundred thousand.
func SleepUntil(ctx context.Context, deadline time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if coarse := time.Until(deadline) - spread; coarse > 0 {
		timer := time.NewTimer(coarse)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	// A sleep may be cut short by a signal, or measured by a clock that ticks a
	// little differently: only the comparison decides.
	spinning := spinner.CompareAndSwap(false, true)
	if spinning {
		defer spinner.Store(false)
	}
	for {
		before := time.Now()
		left := deadline.Sub(before)
		if left <= 0 {
			return nil
		}
		if spinning && left <= spin {
			watch(deadline)
			continue
		}
		if spinning {
			left -= spin
		}
		sleep(left)
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Since(before) == 0 {
			time.Sleep(left) // see watch
		}
	}
}

// watch looks at the clock until the deadline.
func watch(deadline time.Time) {
	const patience = 10_000 // looks; a clock moves within a few
	stood := time.Until(deadline)
	for n := 0; ; n++ {
		left := time.Until(deadline)
		switch {
		case left <= 0:
			return
		case left != stood:
			n, stood = 0, left
		case n == patience:
			// A clock that stands still is that of a testing/synctest bubble, which moves only when
			// the bubble's own timers are due.
			time.Sleep(left)
		}
	}
}
