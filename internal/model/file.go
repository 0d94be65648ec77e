package model

import (
	"maps"
	"slices"
)

// file files a tenant under the instant at which its head may leave, or under none when nothing can
// leave; it follows every change of a tenant. Tickets go out a lead before that instant; what must
// not go out early, after a delay or a pause, is filed a lead later.
func (d *Downstream) file(t *Tenant) {
	p := d.Limits(t)
	t.Timeline = t.Timeline.Settled(p.Rate, d.Now, d.terms(t))
	t.filed = true
	t.Turn = d.Turn(t)
	t.ByTime = d.byTime(t)
	t.Busy = t.Level() > 0 || t.inFlight() > 0

	at := Forever
	switch {
	case t.inFlight() >= p.MaxInFlight: // the next end files it again
	case t.waiting() > 0:
		at = t.Turn
	case t.Later.Len() > 0:
		at = max(t.Later.first().At+d.lead(), t.Turn)
	}
	if t.Until > d.Now {
		at = max(at, t.Until+d.lead())
	}
	if at >= Forever {
		d.Due.drop(t.Name)
		return
	}
	d.Due.put(t.Name, at)
}

// refile files the next tenants that have jobs, after something changed for all of them: some in a
// call, by their names, so that what is due does not wait for the others. It tells whether there may
// be more of them.
func (d *Downstream) refile() (more bool) {
	const some = 20
	if !d.refiling {
		return false
	}
	n := 0
	for _, name := range slices.Sorted(maps.Keys(d.Tenants)) {
		t := d.Tenants[name]
		if !t.Busy || name <= d.refiled {
			continue
		}
		if _, ready := d.Ready.At(name); !ready {
			d.file(t)
		}
		d.refiled = name
		if n++; n == some {
			return true
		}
	}
	d.refiling = false
	return false
}
