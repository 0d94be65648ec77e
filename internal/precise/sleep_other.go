//go:build !linux

package precise

import "time"

// spin is zero: what a timer is late by here, nobody should watch the clock for.
const spin = 0 * time.Microsecond

// sleep blocks for d, as exactly as the runtime's timers are here.
func sleep(d time.Duration) { time.Sleep(d) }
