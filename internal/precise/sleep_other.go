//go:build !linux

package precise

import "time"

// sleep blocks for d, as exactly as the runtime's timers are here.
func sleep(d time.Duration) { time.Sleep(d) }
