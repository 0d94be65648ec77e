package history

import (
	"math"
	"slices"
	"time"
)

// Frozen takes out of a history the starts whose process was stopped on purpose between its last
// look at the clock and the handler's first instruction. Nobody can promise anything about them:
// they happen when the process goes on. They are late by more than τ, and their process stood still
// between their slot and the start.
//
// rest keeps the ends of such starts, since what they did counts.
func Frozen(h History, r Rule) (rest, frozen History) {
	type stop struct{ from, until int64 }
	stops := map[int][]stop{}
	for _, e := range h {
		switch e.Kind {
		case Cut:
			stops[e.PID] = append(stops[e.PID], stop{e.At, math.MaxInt64})
		case Go:
			if l := stops[e.PID]; len(l) > 0 {
				l[len(l)-1].until = e.At
			}
		}
	}
	for _, e := range h {
		late := time.Duration(e.Wall-e.Slot) * time.Microsecond
		slot := e.At - int64(late)
		if e.Kind == Start && late > r.Tolerance && slices.ContainsFunc(stops[e.PID], func(s stop) bool {
			return s.until > slot && s.until < e.At && s.from < e.At
		}) {
			frozen = append(frozen, e)
		} else {
			rest = append(rest, e)
		}
	}
	return rest, frozen
}
