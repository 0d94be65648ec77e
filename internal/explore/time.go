package explore

import "github.com/jobshaper/jobshaper/internal/model"

// passes lets time pass until the next instant at which something may happen. Pools that can beat
// do so, and the scheduler looks at least every second, and just before that instant; if it finds
// something, that is the instant.
func (w *world) passes() {
	next := w.next()
	for w.now < next {
		at := min(next, w.now+poll)
		if at == next && w.now < next-1 {
			at = next - 1
		}
		w.now = at
		w.d.Set(w.now)
		if w.saved != nil && w.now > w.saved.Now+lost {
			w.saved = nil // it is written to its disk
		}
		if w.down != 0 {
			continue
		}
		w.beats()
		if had := len(w.tickets); w.now < next && !w.late {
			if w.release(); len(w.tickets) > had {
				break
			}
		}
	}
	w.fade()
}

// next is the next instant at which something may happen that cannot happen now; 0 = there is none.
func (w *world) next() (at int64) {
	by := func(t int64) {
		if t > w.now && t < model.Forever && (at == 0 || t < at) {
			at = t
		}
	}
	for _, t := range w.tries {
		if t.phase == held {
			by(t.slot)
			by(t.slot + w.tolerance() + 1) // it is missed
		}
	}
	if w.down != 0 {
		by(w.down)
		return at
	}
	for i := range w.pools {
		if p := &w.pools[i]; !p.cut && (w.d.Pools[p.name] == nil || w.d.Pools[p.name].Deadline < w.now) {
			by(w.now + soon) // it beats
		}
	}
	lead := w.d.Policy.Lead.Microseconds() // no worker is far away
	for _, l := range w.d.Out.Lines() {
		by(l.At)
	}
	w.leases(by)
	for _, l := range w.d.Due.Lines() {
		by(l.At - lead)
	}
	if w.d.Ready.Len() > 0 {
		by(w.d.SharedTurn() - lead)
	}
	by(w.d.Until)
	for _, t := range w.d.Tenants {
		by(t.Until)
		if t.Later.Len() > 0 {
			by(t.Later.Lines()[0].At)
		}
	}
	return at
}

// leases: those end that nobody extends; but not while live workers are given time to beat.
func (w *world) leases(by func(int64)) {
	for _, l := range w.d.Running.Lines() {
		if w.extended(l.Name) {
			continue
		}
		if by(l.At); w.d.SparedUntil > w.now {
			by(w.d.SparedUntil)
		}
	}
}

// extended reports whether a live pool keeps the lease of a job.
func (w *world) extended(name string) bool {
	for i := range w.tries {
		t := &w.tries[i]
		if t.phase == entering || t.tenant+" "+t.id != name || w.pool(t.pool).cut {
			continue
		}
		if w.d.Job(t.tenant, t.id).Owned(t.token) {
			return true
		}
	}
	return false
}
