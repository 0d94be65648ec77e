package model

// Grant is a start that was granted.
type Grant struct {
	Tenant, ID string
	Token      string // that owns the job from now on
	Slot       int64
	Ahead      int64 // µs until the slot; negative if it passed
	Attempt    int64
	Charged    int64 // starts that count against the maximum of attempts, this one included
}

// Answers of the gate other than a Grant.
const (
	Gone    = "gone"    // no job of the tenant is out; or the token owns nothing
	Paused  = "paused"  // a job went back to the front: its tenant is paused
	Early   = "early"   // a job went back to the front: the slot is too far ahead to hold a worker
	TooLate = "expired" // the job had waited too long, and ended
)

func (d *Downstream) grant(j *Job) *Grant {
	return &Grant{j.Tenant, j.ID, j.Token, j.Slot, j.Slot - d.Now, j.Starts, j.Starts - j.Forgiven}
}

// Enter asks to start a job on a ticket, under a fresh token. The ticket starts the oldest job of
// its tenant that is out, whichever it was released for: tickets race each other to the gate, and
// jobs must not. One that starts nothing sends back the youngest that is out, so that as many are
// out as tickets, and none overtakes an older one. A repeated call is known by its token.
func (d *Downstream) Enter(k Ticket, token string) (*Grant, string) {
	t := d.Tenant(k.Tenant)
	if j := t.Owned(token); j != nil {
		return d.grant(j), ""
	}
	if t.Outs.Len() == 0 {
		return nil, Gone
	}
	defer d.file(t)
	j := t.Jobs[t.Outs.first().Name]
	if d.Overdue(t, j) {
		d.inherit(k, j)
		d.left(t, j)
		d.end(t, j, Expired)
		return nil, TooLate
	}
	slot, why := d.may(t)
	if why != "" {
		d.recede(t, k)
		return nil, why
	}
	d.inherit(k, j)
	d.left(t, j)
	d.entered(t, j)
	d.run(t, j, slot, token)
	return d.grant(j), ""
}

// Again asks for another slot for a start whose slot was missed, under a fresh token of the same
// pool. It is the same start. A job that cannot have one goes back to the front.
func (d *Downstream) Again(tenant, id, old, token string) (*Grant, string) {
	t := d.Tenant(tenant)
	j := t.Jobs[id]
	switch {
	case j.Owned(token):
		return d.grant(j), ""
	case !j.Owned(old):
		return nil, Gone
	}
	defer d.file(t)
	if j.State == Cancelling { // it need not start in order to end
		d.log("f", tenant, id, j.Starts, Cancelled, "-", d.Now-j.Slot)
		d.left(t, j)
		j.calledOff()
		d.end(t, j, Cancelled)
		return nil, Gone
	}
	slot, why := d.may(t)
	if why != "" {
		d.log("f", tenant, id, j.Starts, "back", "-", d.Now-j.Slot)
		d.left(t, j)
		j.calledOff()
		t.toFront(j)
		return nil, why
	}
	d.run(t, j, slot, token)
	return d.grant(j), ""
}

// may is the slot that a start of a tenant gets now, or why it gets none.
func (d *Downstream) may(t *Tenant) (slot int64, why string) {
	if t.Until > d.Now || d.Until > d.Now {
		return 0, Paused
	}
	if slot = d.slot(t); slot-d.Now > d.Hold() {
		return 0, Early
	}
	return slot, ""
}

// run enters a job as running from its slot on. A job that already runs has missed its slot.
func (d *Downstream) run(t *Tenant, j *Job, slot int64, token string) {
	missed := int64(0)
	if j.State == Running {
		missed = j.Slot
	}
	d.logGrant(t, j, slot, missed)
	d.take(t, slot)
	d.runs[PoolOf(token)]++
	d.disown(t, j)
	j.State, j.Slot, j.Token, j.Next = Running, slot, token, "-"
	t.owned[token] = j
	d.enters(t, j)
	d.lease(t, j)
}

// entered counts the start of a job that was not running. Whether it happens is not known yet.
func (d *Downstream) entered(t *Tenant, j *Job) {
	j.Starts++
	j.Granted = true
	t.RunN++
}

// began counts the start that a job was granted: it began, or nobody can say that it did not. It
// counts once.
func (d *Downstream) began(t *Tenant, j *Job) {
	if j.Granted {
		j.Granted = false
		d.count(t, "started")
	}
}

// calledOff: the start that was granted never happens, so the next one gets its number. A start
// that was said to have begun is forgiven.
func (j *Job) calledOff() {
	if j.Granted {
		j.Granted = false
		j.Starts--
	} else {
		j.Forgiven++
	}
}

// disown: from now on nobody owns the job.
func (d *Downstream) disown(t *Tenant, j *Job) {
	if t.owned[j.Token] == j {
		delete(t.owned, j.Token)
		pool := PoolOf(j.Token)
		if d.runs[pool]--; d.runs[pool] == 0 {
			delete(d.Fell, pool)
		}
	}
}

// Owned is the job that runs under a token, or nil.
func (t *Tenant) Owned(token string) *Job { return t.owned[token] }

// inherit: a ticket is used up by a job other than its own. Its own job, if it is out, now waits
// for the other's ticket, but not beyond its own deadline: no job is out for longer than a ticket
// lives.
func (d *Downstream) inherit(k Ticket, j *Job) {
	own := d.Job(k.Tenant, k.ID)
	if own != nil && own != j && own.State == Out && own.Releases == k.Release && j.At < own.At {
		own.At = j.At
		d.Out.put(k.Tenant+" "+k.ID, own.At)
	}
}

// recede: a ticket starts nothing. The youngest job that is out returns to the front.
func (d *Downstream) recede(t *Tenant, k Ticket) bool {
	if t.Outs.Len() == 0 {
		return false
	}
	j := t.Jobs[t.Outs.last().Name]
	d.inherit(k, j)
	d.left(t, j)
	t.toFront(j)
	return true
}

// GiveBack takes back a ticket whose holder will not use it, and reports whether a job went back.
// Repeated, it counts as another one: one job too many goes back, and is released again.
func (d *Downstream) GiveBack(k Ticket) bool {
	t := d.Tenant(k.Tenant)
	if !d.recede(t, k) {
		return false
	}
	d.file(t)
	return true
}
