//go:build crashpoints

package crashpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// armed is where this process crashes; nil = nowhere.
var armed = arm(os.Getenv(Env))

type point struct {
	name string
	left atomic.Int64 // hits until it crashes
}

// arm reads POINT:N. A mistake ends the program: a crash that never comes would pass for one that
// was survived.
func arm(text string) *point {
	if text == "" {
		return nil
	}
	name, times, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(times, 10, 64)
	if err != nil || n < 1 || !known(name) {
		panic(fmt.Sprintf("%s %q: want POINT:N, a point of internal/crashpoint and a number from 1", Env, text))
	}
	p := &point{name: name}
	p.left.Store(n)
	return p
}

// Hit kills the process if this is where it must crash. It is safe for concurrent use.
func Hit(name string) {
	if armed == nil || armed.name != name || armed.left.Add(-1) != 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "crash point %s\n", name)
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(fmt.Sprintf("crash at %s: %v", name, err))
	}
	select {} // the signal may take a moment, and this goroutine must not get any further
}
