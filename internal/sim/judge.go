package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
)

// Findings are the promises that a play saw broken, and what it saw besides.
type Findings struct {
	Broken   []string // a line each; empty if all were kept
	Starts   int
	Missed   int           // slots that came to their workers too late
	Tickets  int           // the most that asynq held at once
	Restarts int           // of Redis
	Forgot   int           // of those forgot something
	Days     float64       // that passed
	Worst    time.Duration // the longest that a tenant with a backlog did not start, beyond its interval
}

// record is what happened, as a judge sees it who does not ask the queue.
type record struct {
	s        Scenario
	tenants  map[string]*Tenant
	jobs     map[string]*fate
	running  map[string]int // of each tenant
	starts   []started
	broken   []string
	tickets  int
	missed   int
	forgets  int
	cuts     [][2]int64 // when Redis was away
	calm     int64      // since when nothing breaks
	fresh    []string   // accepted since the store was saved
	left     int        // accepted jobs that have not ended
	poison   map[string]bool
	restarts int
}

// fate is what became of a job.
type fate struct {
	tenant   string
	accepted int64
	done     bool
	begun    bool
	mayGo    bool // Redis may have forgotten it
}

type started struct {
	tenant, id string
	attempt    int64
	slot, at   int64
}

func newRecord(s Scenario) record {
	r := record{s: s, tenants: map[string]*Tenant{}, jobs: map[string]*fate{}, running: map[string]int{},
		poison: map[string]bool{}}
	for i := range s.Tenants {
		r.tenants[s.Tenants[i].Name] = &s.Tenants[i]
	}
	return r
}

func (r *record) breach(format string, args ...any) {
	if len(r.broken) < 20 {
		r.broken = append(r.broken, fmt.Sprintf(format, args...))
	}
}

func (r *record) accepted(tenant, id string, at int64) {
	if r.jobs[id] == nil {
		r.jobs[id] = &fate{tenant: tenant, accepted: at}
		r.fresh = append(r.fresh, id)
		if !r.poison[id] {
			r.left++
		}
	}
}

func (r *record) granted(g *model.Grant, now int64) {
	if g != nil && g.Slot-now > 1_000_000 {
		r.breach("%s was granted a slot %d µs ahead", g.ID, g.Slot-now)
	}
}

func (r *record) started(g *model.Grant, at int64) {
	j := r.jobs[g.ID]
	if j == nil {
		r.breach("%s starts, and nobody offered it", g.ID)
		return
	}
	j.begun = true
	if r.running[g.Tenant]++; r.forgets == 0 {
		if most := r.tenants[g.Tenant].Policy.MaxInFlight; most > 0 && int64(r.running[g.Tenant]) > most {
			r.breach("%d of %s run at once, and %d may", r.running[g.Tenant], g.Tenant, most)
		}
	}
	r.starts = append(r.starts, started{g.Tenant, g.ID, g.Attempt, g.Slot, at})
}

// crashed: the process that ran a job is gone.
func (r *record) crashed(g *model.Grant) { r.running[g.Tenant]-- }

func (r *record) finished(g *model.Grant, end model.Ended, _ int64) {
	j := r.jobs[g.ID]
	switch {
	case end.Became == "dead":
		r.breach("%s is dead, and never failed for good", g.ID)
	case end.Became == "done" && j != nil && !j.done:
		j.done = true
		r.left--
	}
	if j != nil && j.begun {
		r.running[g.Tenant] = max(0, r.running[g.Tenant]-1)
	}
}

func (r *record) saved() { r.fresh = nil }

func (r *record) forgot(int64) {
	r.forgets++
	for _, id := range r.fresh {
		if j := r.jobs[id]; !j.done && !j.mayGo {
			j.mayGo = true
			if !r.poison[id] {
				r.left--
			}
		}
	}
}

func (r *record) cut(from, until int64) {
	r.restarts++
	r.cuts = append(r.cuts, [2]int64{from, until})
}

// ended reports whether all that was accepted has ended.
func (r *record) ended() bool { return r.left <= 0 }

func micros(d time.Duration) int64 { return d.Microseconds() }

func interval(r buckets.Rate) int64 { return micros(r.Period) / r.Events }

// patience is how long after the last fault what is left may take.
func (r *record) patience() int64 {
	left, all, wait, work := map[string]int64{}, int64(0), int64(0), int64(0)
	for _, j := range r.jobs {
		if !j.done && !j.mayGo {
			left[j.tenant]++
			all++
			work += micros(r.tenants[j.tenant].Runs)
		}
	}
	for name, n := range left {
		wait = max(wait, n*interval(r.tenants[name].Policy.Rate))
	}
	wait = max(wait, work/int64(r.places()))
	if !r.s.Policy.Rate.IsZero() {
		wait = max(wait, all*interval(r.s.Policy.Rate))
	}
	return 3*wait + 10*60_000_000 + 3*micros(r.s.Policy.Lease) + 2*micros(r.s.Poll)
}

func (r *record) places() (n int) {
	for _, of := range r.s.Pools {
		n += of
	}
	return n
}

const (
	tau  = 20_000 // µs, the default
	hold = 60_000 // µs that a worker may wait for a slot, by default
)

// judge looks at what happened.
func (r *record) judge(p *play) Findings {
	slices.SortStableFunc(r.starts, func(a, b started) int { return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.at, b.at)) })
	for _, s := range r.starts {
		if s.at < s.slot || s.at > s.slot+tau {
			r.breach("%s of %s starts %d µs after its slot", s.id, s.tenant, s.at-s.slot)
		}
	}
	if rate := r.s.Policy.Rate; !rate.IsZero() {
		r.spaced("the downstream", r.starts, interval(rate))
	}
	worst := int64(0)
	for i := range r.s.Tenants {
		t := &r.s.Tenants[i]
		name := t.Name
		own := slices.DeleteFunc(slices.Clone(r.starts), func(s started) bool { return s.tenant != name })
		iv := interval(t.Policy.Rate)
		least := iv
		if !r.s.Policy.Rate.IsZero() && r.s.Policy.Shared {
			least -= min(interval(r.s.Policy.Rate), iv) + 1
		}
		r.spaced(name, own, least)
		if !r.s.Faults.any() {
			r.inOrder(name, own)
			r.keptRate(t, own)
		}
		worst = max(worst, r.goesOn(t, own))
	}
	for _, id := range slices.Sorted(maps.Keys(r.jobs)) {
		j := r.jobs[id]
		if j.done || j.mayGo || r.poison[id] {
			continue
		}
		if p.store.ForgetDead(j.tenant, id) > 0 {
			r.breach("%s of %s is dead, and harmed nobody", id, j.tenant)
		} else {
			r.breach("%s of %s was accepted and has not ended", id, j.tenant)
		}
	}
	if r.tickets > 2*r.places()+50 {
		r.breach("asynq held %d tickets, and there are %d places", r.tickets, r.places())
	}
	return Findings{Broken: r.broken, Starts: len(r.starts), Missed: r.missed, Tickets: r.tickets, Restarts: r.restarts, Forgot: r.forgets,
		Days: float64(p.now-start) / 86_400_000_000, Worst: time.Duration(worst) * time.Microsecond}
}

// spaced checks that no two slots are closer than an interval.
func (r *record) spaced(whose string, starts []started, iv int64) {
	for i := 1; i < len(starts); i++ {
		if gap := starts[i].slot - starts[i-1].slot; gap < iv {
			r.breach("%s: %s follows %s after %d µs, the interval is %d (at %d)", whose, starts[i].id, starts[i-1].id, gap, iv, starts[i].slot-start)
		}
	}
}

// inOrder checks that jobs start in the order in which they were accepted.
func (r *record) inOrder(whose string, starts []started) {
	last, seen := int64(0), map[string]bool{}
	for _, s := range starts {
		if seen[s.id] {
			continue
		}
		seen[s.id] = true
		at := r.jobs[s.id].accepted
		if at < last {
			r.breach("%s: %s starts after one that was accepted later", whose, s.id)
		}
		last = max(last, at)
	}
}

// keptRate checks that a tenant with a backlog gets its rate while nothing breaks.
func (r *record) keptRate(t *Tenant, starts []started) {
	want := int64(r.s.For.Microseconds()) / interval(t.Policy.Rate)
	got, _ := slices.BinarySearchFunc(starts, r.calm, func(s started, at int64) int { return cmp.Compare(s.slot, at) })
	if int64(t.Backlog) > want && int64(got) < want*99/100-1 {
		r.breach("%s had %d starts in %v at %v, want 99 %% of %d", t.Name, got, r.s.For, t.Policy.Rate, want)
	}
}

// goesOn checks that a tenant whose backlog is never empty does not wait longer than two intervals
// and a hold from one start to the next, besides what Redis was away and a scheduler may sleep. It
// returns the longest wait beyond an interval.
func (r *record) goesOn(t *Tenant, starts []started) (worst int64) {
	iv := interval(t.Policy.Rate)
	if int64(t.Backlog) <= micros(r.s.For)/iv || !r.s.Policy.Rate.IsZero() {
		return 0
	}
	before := start
	for _, s := range starts {
		if s.slot > r.calm {
			break
		}
		gap := s.slot - before
		for _, c := range r.cuts {
			if c[1] > before && c[0] < s.slot {
				gap -= c[1] - c[0] + 5_000_000
			}
		}
		worst = max(worst, gap-iv)
		if gap > 2*iv+hold+micros(r.s.Poll)+15_000_000 {
			r.breach("%s at %v did not start for %v", t.Name, t.Policy.Rate, time.Duration(gap)*time.Microsecond)
		}
		before = s.slot
	}
	return worst
}
