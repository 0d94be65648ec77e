package explore

import (
	"fmt"
	"slices"

	"github.com/jobshaper/jobshaper/internal/model"
)

// record is what happened so far, as somebody knows it who does not ask the queue: the properties
// are about that. It keeps no more of it than they need.
type record struct {
	fates  []fate // in the order of the tenants, and of their jobs
	recent []begun
	forgot bool // Redis has forgotten something
	broken string
}

// fate is what became of a job.
type fate struct {
	tenant, id string
	poison     bool
	accepted   bool
	mayGo      bool   // Redis may have forgotten it
	cancelled  bool   // somebody wanted that
	end        string // as its worker or whoever cancelled it was told; "" = it has not ended
	attempt    int64  // of its last start
	owner      string // the token of its last grant
	least      int64  // the interval that was in force then
	deaths     int8   // of processes in which it ran, because it ran
}

// begun is a start that was not long ago.
type begun struct {
	tenant      string
	slot, least int64 // and the interval that was in force when it got its slot
}

func newRecord(s *Scenario) (r record) {
	for i := range s.Tenants {
		t := &s.Tenants[i]
		for n := range t.Jobs {
			r.fates = append(r.fates, fate{tenant: t.Name, id: jobName(t, n), poison: t.poisonous(n)})
		}
	}
	return r
}

func (r *record) clone() record {
	c := *r
	c.fates, c.recent = slices.Clone(r.fates), slices.Clone(r.recent)
	return c
}

func (r *record) fate(tenant, id string) *fate {
	for i := range r.fates {
		if f := &r.fates[i]; f.tenant == tenant && f.id == id {
			return f
		}
	}
	return nil
}

// breach notes the first promise that is broken.
func (r *record) breach(format string, args ...any) {
	if r.broken == "" {
		r.broken = fmt.Sprintf(format, args...)
	}
}

// granted: the queue has granted a slot.
func (w *world) granted(g *model.Grant) {
	f := w.seen.fate(g.Tenant, g.ID)
	switch {
	case f == nil || !f.accepted:
		w.seen.breach("%s is granted a slot, and was not accepted", g.ID)
	case f.end != "":
		w.seen.breach("%s is granted a slot, and has ended: %s", g.ID, f.end)
	case g.Ahead > w.d.Hold():
		w.seen.breach("%s is granted a slot %d µs ahead, more than a worker waits", g.ID, g.Ahead)
	}
	if f != nil && f.owner != g.Token {
		f.owner, f.least = g.Token, interval(w.d.Limits(w.d.Tenants[g.Tenant]).Rate)
	}
}

// started: a handler begins.
func (w *world) started(t *try) {
	if w.now < t.slot || w.now > t.slot+w.tolerance() {
		w.seen.breach("%s starts %d µs after its slot", t.id, w.now-t.slot)
	}
	for _, o := range w.seen.recent {
		w.spaced(t, o)
	}
	w.seen.recent = append(w.seen.recent, begun{t.tenant, t.slot, t.least})
	f := w.seen.fate(t.tenant, t.id)
	if !w.seen.forgot {
		if t.attempt <= f.attempt {
			w.seen.breach("attempt %d of %s starts after attempt %d", t.attempt, t.id, f.attempt)
		}
		for i := range w.tries {
			if o := &w.tries[i]; o != t && o.phase == running && o.tenant == t.tenant && o.id == t.id && !o.cut {
				w.seen.breach("%s starts while it runs where nothing ended its lease", t.id)
			}
		}
	}
	f.attempt = max(f.attempt, t.attempt)
}

// spaced checks that a start and an earlier one are an interval apart: that which was in force when
// the later of them got its slot.
func (w *world) spaced(t *try, o begun) {
	first, later, least := o.slot, t.slot, t.least
	if first > later {
		first, later, least = later, first, o.least
	}
	if o.tenant == t.tenant && later-first < least {
		w.seen.breach("%s starts %d µs from another start of its tenant, the interval is %d", t.id, later-first, least)
	}
	if r := w.s.Policy.Rate; !r.IsZero() && later-first < interval(r) {
		w.seen.breach("%s starts %d µs from another start of the downstream, the interval is %d", t.id, later-first, interval(r))
	}
}

// ended: the queue has answered a report.
func (w *world) ended(t *try, became string) {
	f := w.seen.fate(t.tenant, t.id)
	owns := f.owner == t.token
	switch {
	case w.seen.forgot:
	case became != model.Stale && !owns:
		w.seen.breach("%s is %s by the word of one that does not own it", t.id, became)
	case became == model.Stale && owns && !t.cut && f.end == "" && !t.told:
		w.seen.breach("the owner of %s reports its end, and is refused", t.id)
	}
	switch became {
	case model.Stale:
	case "dead":
		if t.ending != model.EndError && t.ending != model.EndThrottled && t.ending != model.EndDead {
			w.seen.breach("%s ended %s, and is dead", t.id, t.ending)
		}
		f.ends(&w.seen, became)
	case string(model.Done):
		if t.ending != model.EndOK {
			w.seen.breach("%s ended %s, and is done", t.id, t.ending)
		}
		f.ends(&w.seen, became)
	case string(model.Cancelled):
		f.ends(&w.seen, became)
	}
	t.told = became != model.Stale
}

// ends: a job has ended. It does so once.
func (f *fate) ends(r *record, how string) {
	if f.end != "" && f.end != how && !r.forgot {
		r.breach("%s is %s, and then %s", f.id, f.end, how)
	}
	f.end = how
}

// forget is what Redis does not know any more.
func (w *world) forget() {
	w.seen.forgot = true
	for i := range w.seen.fates {
		f := &w.seen.fates[i]
		if !f.accepted {
			continue
		}
		j := w.d.Job(f.tenant, f.id)
		f.mayGo = j == nil
		if f.end != "" && !over(j) {
			f.end = ""
		}
	}
}

// over reports whether a job does not start again.
func over(j *model.Job) bool { return j != nil && (j.Ended() || j.State == model.Dead) }

func (w *world) tolerance() int64 { return w.d.Policy.Tolerance.Microseconds() }

// fade forgets starts that no later one can be too close to.
func (w *world) fade() {
	long := w.s.longest() + w.tolerance()
	w.seen.recent = slices.DeleteFunc(w.seen.recent, func(b begun) bool { return w.now-b.slot > long })
}
