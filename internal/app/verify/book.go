package verify

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// book is a departure log, in events of package history. There are several histories, since not
// everything is known about each start:
//
//	granted   every slot, as a start at its slot, missed slots included
//	starts    the starts that a worker reported, at the instant when they began
//	jobs      starts and ends in the order of the log, without starts that never began: the number
//	          of such a start goes to the next one
//	shared    granted, with all tenants as one, where the downstream has a rate
//	together  starts, likewise
type book struct {
	o                                       Options
	granted, starts, jobs, shared, together history.History

	states map[start]*state
	uses   map[[2]string]*use // by tenant and id
	rules  map[rule]*history.Rule
	rate   map[string]buckets.Rate // of each tenant, at its last slot

	first time.Time     // of the oldest entry
	whole bool          // nothing is missing before it
	now   time.Time     // of the last grant, on a clock that never goes back
	shift time.Duration // how far that clock is ahead of Redis'

	missed, unstarted, lost, rates, pauses, restarts int // what happened: see seen
	gaps, untold, steps, noise                       int // what is not known: see unjudged
}

// start names a start within a log.
type start struct {
	tenant, id string
	attempt    int
}

// state is what is known of a start.
type state struct {
	at     int       // where in granted
	job    int       // where in jobs
	shared int       // where in shared, -1 = nowhere
	slot   time.Time // as the log has it
	ended  bool
}

// use tells a job from a later one under the same id.
type use struct {
	n    int
	last time.Time // when it was last heard of
	dead bool
	back bool // its last start never began
}

// forgottenAfter is how long at least an id is known after its job's end: the shortest retention
// there is. A dead job may be removed at any time.
const forgottenAfter = time.Minute

// rule is the part of a grant that decides its history.Rule.
type rule struct {
	rate      buckets.Rate
	tau, keep time.Duration
}

func newBook(o Options) *book {
	return &book{o: o, states: map[start]*state{}, uses: map[[2]string]*use{}, rules: map[rule]*history.Rule{},
		rate: map[string]buckets.Rate{}}
}

// neverBegan marks a start in jobs that never began.
const neverBegan history.Kind = ""

// close sorts the histories that have instants by those, and removes from jobs what never began.
func (b *book) close() {
	for _, h := range []history.History{b.granted, b.starts, b.shared, b.together} {
		slices.SortStableFunc(h, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	}
	b.jobs = slices.DeleteFunc(b.jobs, func(e history.Event) bool { return e.Kind == neverBegan })
}

// enter records one entry.
func (b *book) enter(e shaper.LogEntry) {
	if b.first.IsZero() {
		b.first, b.whole = e.At, e.Kind == shaper.LogOpened || b.o.Since > 0
	} else if e.Kind == shaper.LogOpened {
		b.gaps++
	}
	if e.Kind == shaper.LogGranted {
		b.tick(e.Granted)
	}
	if b.o.Tenant != "" && e.Tenant != "" && e.Tenant != b.o.Tenant {
		return
	}
	switch e.Kind {
	case shaper.LogGranted:
		b.grant(e)
	case shaper.LogEnded:
		b.end(e, e.Became)
	case shaper.LogLost:
		b.lost++
		b.end(e, "lost")
	case shaper.LogPaused:
		b.pauses++
	case shaper.LogRestart:
		b.restarts++
	case shaper.LogNoise:
		b.noise++
	}
}

// tick moves the clock. The log's order is the order in which things happened; where an instant
// contradicts it, Redis' clock stepped back, and all later instants are moved forward by as much as
// the step is known to be.
func (b *book) tick(at time.Time) {
	at = at.Add(b.shift)
	if back := b.now.Sub(at); back > 0 && !b.now.IsZero() {
		b.shift += back
		b.steps++
		at = b.now
	}
	b.now = at
}

// name is a job's id, with a number if an earlier job had the same id.
func (b *book) name(tenant, id string) string {
	if u := b.uses[[2]string{tenant, id}]; u != nil && u.n > 1 {
		return fmt.Sprintf("%s#%d", id, u.n)
	}
	return id
}

func (b *book) ruleOf(r buckets.Rate, tau, keep time.Duration) *history.Rule {
	k := rule{r, tau, keep}
	if b.rules[k] == nil {
		b.rules[k] = &history.Rule{Rate: r, Tolerance: tau, Keep: keep}
	}
	return b.rules[k]
}

func (b *book) grant(e shaper.LogEntry) {
	k := [2]string{e.Tenant, e.ID}
	u := b.uses[k]
	switch {
	case u == nil:
		u = &use{n: 1}
		b.uses[k] = u
	case e.Attempt == 1 && e.Missed.IsZero() && !u.back && (u.dead || b.now.Sub(u.last) >= forgottenAfter):
		u.n++
	}
	u.last, u.dead, u.back = b.now, false, false
	if r, known := b.rate[e.Tenant]; known && r != e.Rate {
		b.rates++
	}
	b.rate[e.Tenant] = e.Rate

	slot := e.Slot.Add(b.shift)
	ev := history.Event{Kind: history.Start, At: slot.UnixNano(), Wall: slot.UnixMicro(), Slot: slot.UnixMicro(), Tenant: e.Tenant,
		ID: b.name(e.Tenant, e.ID), Attempt: e.Attempt, Under: b.ruleOf(e.Rate, e.Tolerance, e.Keep)}
	s := start{ev.Tenant, ev.ID, ev.Attempt}
	before := b.states[s]
	st := &state{at: len(b.granted), job: len(b.jobs), shared: -1, slot: e.Slot}
	if before != nil && !before.ended && before.slot.Equal(e.Missed) {
		b.missed++ // the same start in another slot
		st.job = before.job
	} else {
		b.jobs = append(b.jobs, ev)
	}
	b.states[s] = st
	b.granted = append(b.granted, ev)
	if !e.Common.IsZero() {
		all := ev
		all.Tenant, all.ID, all.Under = "", ev.Tenant+"/"+ev.ID, b.ruleOf(e.Common, e.Tolerance, 0)
		st.shared = len(b.shared)
		b.shared = append(b.shared, all)
	}
}

func (b *book) end(e shaper.LogEntry, became string) {
	ev := history.Event{Kind: history.End, Tenant: e.Tenant, ID: b.name(e.Tenant, e.ID), Attempt: e.Attempt, Outcome: outcome(became)}
	s := b.states[start{ev.Tenant, ev.ID, ev.Attempt}]
	if s == nil {
		return // its start was before the log
	}
	u := b.uses[[2]string{e.Tenant, e.ID}]
	granted := b.granted[s.at]
	at := granted.At + e.Took.Nanoseconds()
	u.last, u.dead = time.Unix(0, max(at, b.now.UnixNano())), became == "dead"
	if e.Never && !s.ended {
		b.jobs[s.job].Kind, u.back = neverBegan, became == "back"
		s.ended = true
		b.unstarted++
		return
	}
	ev.At, ev.Wall = at, at/1000
	b.jobs = append(b.jobs, ev)
	if s.ended {
		return
	}
	s.ended = true
	switch {
	case !e.Began:
		b.untold++
	default:
		b.starts = append(b.starts, begun(granted, e.Late))
		if s.shared >= 0 {
			b.together = append(b.together, begun(b.shared[s.shared], e.Late))
		}
	}
}

// begun is the start that began this late after its slot.
func begun(e history.Event, late time.Duration) history.Event {
	e.At += late.Nanoseconds()
	e.Wall += late.Microseconds()
	return e
}

// outcome translates what became of a job into history's word for it.
func outcome(became string) string {
	if became == "retry" {
		return history.Failed
	}
	return became // the other words are the same
}
