package model

// Start-time fair queueing: a tenant's virtual time is where its share of what tenants have in
// common ends. A job costs 1/weight of it, and the tenant that has the least is served. One that
// had nothing to send starts at the present virtual time: idleness earns no share.
const share = 1_000_000 // of a job of weight 1

// visit is one call in which jobs may leave. What is due ripens once in it.
type visit struct {
	*Downstream
	ripened map[*Tenant]bool
}

func (d *Downstream) visit() visit { return visit{d, map[*Tenant]bool{}} }

// promote lets those whose time has come into the fair order, with their jobs that are due again.
func (v visit) promote() {
	for _, l := range v.Due.until(v.Now + v.lead()) {
		t := v.Tenants[l.Name]
		v.ripenOnce(t)
		v.Due.drop(t.Name)
		v.Ready.put(t.Name, max(v.VirtualTime, t.VirtualTime))
	}
}

func (v visit) ripenOnce(t *Tenant) {
	if !v.ripened[t] {
		v.ripened[t] = true
		v.ripen(t)
	}
}

// Ripe reports whether a tenant's head may leave now, if it has one.
func (d *Downstream) Ripe(t *Tenant) bool {
	return t.Until <= d.Now && t.inFlight() < d.Limits(t).MaxInFlight && d.Turn(t) <= d.Now+d.lead()
}

// SharedRipe reports whether the downstream as a whole lets a job leave now.
func (d *Downstream) SharedRipe() bool { return d.Until <= d.Now && d.SharedTurn() <= d.Now+d.lead() }

// pick takes the next job out of its bucket, in fair order. It is in no book then: the caller
// enters it as out or running, and calls picked for its tenant. With toRun it must run at once, so
// a job whose ticket is out goes before the bucket's head; that ticket will start another one, or
// none.
//
// Tenants that have nothing that can leave are filed anew on the way.
func (v visit) pick(toRun bool) (*Tenant, *Job) {
	for v.SharedRipe() && v.Ready.Len() > 0 {
		t := v.Tenants[v.Ready.first().Name]
		v.ripenOnce(t)
		if v.Ripe(t) {
			if toRun && t.OutN > 0 {
				if j := v.oldestOut(t); j != nil {
					return t, j // its share was charged when its ticket left
				}
			}
			if j := v.head(t); j != nil {
				j.Releases++
				v.VirtualTime = max(v.VirtualTime, t.VirtualTime)
				t.VirtualTime = v.VirtualTime + share/v.Limits(t).Weight
				v.Ready.put(t.Name, t.VirtualTime)
				return t, j
			}
		}
		v.Ready.drop(t.Name)
		v.file(t)
	}
	return nil, nil
}

// picked: a tenant that may send another job at once stays in the fair order. Any other is filed.
func (d *Downstream) picked(t *Tenant) {
	if d.Ripe(t) && t.waiting() > 0 {
		return
	}
	d.Ready.drop(t.Name)
	d.file(t)
}

// head takes the first job that may start. One that waited too long ends, and uses no slot; a
// suspect that must wait is set aside.
func (d *Downstream) head(t *Tenant) *Job {
	for {
		j := t.pop()
		switch {
		case j == nil:
			return nil
		case d.Overdue(t, j):
			d.end(t, j, Expired)
		case j.Suspect > 0 && !d.hasRoom(j):
			t.later(j, Backoff, d.Now+askAgain)
		default:
			return j
		}
	}
}

// oldestOut takes the oldest job that is out and may still start.
func (d *Downstream) oldestOut(t *Tenant) *Job {
	for t.Outs.Len() > 0 {
		j := t.Jobs[t.Outs.first().Name]
		d.left(t, j)
		if !d.Overdue(t, j) {
			return j
		}
		d.end(t, j, Expired)
	}
	return nil
}

// left takes a job off the books of what is in flight.
func (d *Downstream) left(t *Tenant, j *Job) {
	name := t.Name + " " + j.ID
	d.Apart.drop(name)
	switch j.State {
	case Out:
		d.Out.drop(name)
		t.Outs.drop(j.ID)
		t.OutN--
	case Running, Cancelling:
		d.Running.drop(name)
		d.disown(t, j)
		t.RunN--
	}
}
