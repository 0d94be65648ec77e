// Package crashpoint ends a process at a chosen instruction, as a kill -9 or a power cut would, so
// that tests can go through every instruction at which that could matter.
//
// The code that talks to Redis says Hit before and after each call. In a build with the tag
// crashpoints, the n-th hit of the point that the environment names (SHAPER_CRASH=gate.after:3)
// kills the process; any other build contains none of this.
package crashpoint

import "slices"

// Env names the variable that says where to crash: POINT:N, at the N-th hit of a point, N from 1.
const Env = "SHAPER_CRASH"

// calls are a process's dealings with others. Each has a point before and a point after it; at the
// latter its effect is there, and nobody has acted on its answer yet.
var calls = []string{
	// the scripts of package shaper, by the names of their files
	"enqueue", "release", "gate", "finish", "beat", "giveback", "cancel", "dead", "purge", "policy", "config", "pause", "forget", "find",
	"stats", "compare", "mend",
	"pipeline", // enqueue scripts that share a round trip
	"ticket",   // asynq takes a ticket
	"dequeue",  // asynq hands a ticket out; after is hit when there was one
	"done",     // asynq is told that a ticket was used
	"handler",  // the user's code
}

// Points lists every point.
func Points() []string {
	var out []string
	for _, c := range calls {
		out = append(out, c+".before", c+".after")
	}
	return out
}

// known reports whether there is a point of this name.
func known(name string) bool { return slices.Contains(Points(), name) }
