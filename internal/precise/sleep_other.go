//go:build !linux

package precise

import "time"

// spin is zero: timers here are late by longer than anybody should watch the clock.
const spin = 0 * time.Microsecond

// sleep blocks for d, as exactly as the runtime's timers are here.
func sleep(d time.Duration) { time.Sleep(d) }
