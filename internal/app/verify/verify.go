// Package verify compares what happened with what was promised: it reads a downstream's departure
// log, or a history file. It turns the log into events of package history, whose checks do the
// judging, and says in plain words what they found.
package verify

import (
	"cmp"
	"slices"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
)

// Promise is what was found about one promise.
type Promise struct {
	Name   string
	Figure string // what was looked at and how close it came, in words
	Broken []history.Violation
}

// Held reports whether nothing was found that breaks the promise.
func (p Promise) Held() bool { return len(p.Broken) == 0 }

// Findings are what came of a check.
type Findings struct {
	Of       string    // what was judged, in words
	From, To time.Time // of the first and the last start; zero if there is none
	Promises []Promise
	Seen     []string // what else happened that bears on spacing
	Unjudged []string // what could not be judged, and why
	Starts   int
	Instant  string // at which a start is judged, in words; empty if who recorded the starts knows

	wall func(at int64) time.Time // reads the clock of the violations
}

// Held reports whether all promises were held.
func (v Findings) Held() bool {
	return !slices.ContainsFunc(v.Promises, func(p Promise) bool { return !p.Held() })
}

// Violations returns all violations, in the order in which they happened.
func (v Findings) Violations() []history.Violation {
	var out []history.Violation
	for _, p := range v.Promises {
		out = append(out, p.Broken...)
	}
	slices.SortStableFunc(out, func(a, b history.Violation) int { return cmp.Compare(a.At, b.At) })
	return out
}

// Wall returns when a violation happened, by the clock that people read.
func (v Findings) Wall(of history.Violation) time.Time { return v.wall(of.At) }

// judge runs the checks of one promise.
func (v *Findings) judge(name, figure string, found ...[]history.Violation) {
	broken := slices.Concat(found...)
	slices.SortStableFunc(broken, func(a, b history.Violation) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ID, b.ID))
	})
	v.Promises = append(v.Promises, Promise{name, figure, broken})
}

const inWindows = ", in windows of an interval, a second and ten"

// starts judges the promises about starts whose instants are known.
func (v *Findings) starts(h history.History, r history.Rule) {
	of := count(len(h), "start") + " of " + count(tenants(h), "tenant")
	v.judge("spacing", of+closest(h, r), history.Spacing(h, r))
	v.judge("windows", of+inWindows, history.Windows(h, r))
	v.judge("on time", of+latest(h, r), history.OnTime(h, r))
}
