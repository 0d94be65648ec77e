package model

import (
	"slices"
	"time"
)

// Offer is a job that somebody offers.
type Offer struct {
	ID      string
	Body    string // what the job is; the same id with another body is a conflict
	Call    string // names this offer, so that a repeated call is known; no two offers have the same
	Delay   time.Duration
	MaxWait time.Duration // how long it may wait for its start; 0 = as the policy has it, negative = for ever
}

// Answer is what the producer is told.
type Answer struct {
	Status   Status
	Position int    // in the bucket, from 1; 0 = it does not wait
	State    string // of the job that is known; "w" also for one that was never out, "" = there is none
}

// Status is what became of an offer.
type Status string

const (
	Accepted  Status = "accepted"  // it waits; or it was accepted before this call was repeated
	Duplicate Status = "duplicate" // the id is known with the same body: it has not ended, or is done
	IsDead    Status = "dead"      // the same, and it is dead and kept
	Conflict  Status = "conflict"  // the id is known with another body
	Full      Status = "full"      // no room
	Block     Status = "block"     // no room, and the tenant's policy is to wait for it
)

// Offer offers jobs to a tenant's bucket, each on its own. A refusal leaves no trace. A job that is
// known is not taken again, unless it ended otherwise than done: then it begins anew.
func (d *Downstream) Offer(tenant string, offers ...Offer) (out []Answer) {
	t := d.Tenant(tenant)
	// Jobs that only join those that wait change nothing about when the head may leave. The first
	// that is anything else has the tenant filed anew, as it and those after it find it.
	joins, refile := d.joins(t), false
	for i, o := range offers {
		if o.Delay > 0 || o.MaxWait != 0 || t.Jobs[o.ID] != nil {
			joins = 0
		}
		a, entered := d.offer(t, o, int64(i))
		refile = refile || entered && joins <= 0
		joins--
		out = append(out, a)
	}
	if refile {
		d.file(t)
	}
	return out
}

// offer offers the nth job of a call. entered tells that it is in the bucket from now on.
func (d *Downstream) offer(t *Tenant, o Offer, nth int64) (a Answer, entered bool) {
	if j := t.Jobs[o.ID]; j != nil {
		if a := t.standing(j, o); a.Status != "" {
			return a, false
		}
	}
	if !d.makeRoom(t) {
		if d.Limits(t).OnFull == "block" {
			return Answer{Status: Block}, false
		}
		return Answer{Status: Full}, false
	}
	j := &Job{Tenant: t.Name, ID: o.ID, Body: o.Body, Call: o.Call, Since: d.Now + o.Delay.Microseconds() + nth,
		MaxWait: o.MaxWait.Truncate(time.Millisecond), Token: "-", Next: "-"}
	t.Jobs[o.ID] = j
	d.count(t, "accepted")
	if o.Delay > 0 {
		t.later(j, Delayed, d.Now+o.Delay.Microseconds())
		return Answer{Status: Accepted, State: string(Delayed)}, true
	}
	j.State = Unseen
	t.Fresh = append(t.Fresh, j.ID)
	return Answer{Accepted, int(t.waiting()), string(Waiting)}, true
}

// standing is the answer to an offer of a job that is known; without a Status it begins anew.
func (t *Tenant) standing(j *Job, o Offer) Answer {
	a := Answer{Status: Duplicate, Position: t.position(j.ID), State: string(j.State)}
	if j.State == Unseen {
		a.State = string(Waiting)
	}
	switch {
	case j.Body != o.Body:
		a.Status = Conflict
	case j.Call == o.Call:
		a.Status = Accepted
	case j.State == Dead:
		a.Status = IsDead
	case j.Ended() && j.State != Done:
		a.Status = ""
	}
	return a
}

// makeRoom ends jobs that waited too long and, if the policy is to drop the oldest, those that have
// waited longest and were never started; if that makes room for one more.
func (d *Downstream) makeRoom(t *Tenant) bool {
	p := d.Limits(t)
	need := int(t.Level() - p.Depth + 1)
	if need <= 0 {
		return true
	}
	var over, oldest []*Job
	for _, id := range t.Waiting() {
		switch j := t.Jobs[id]; {
		case d.Overdue(t, j):
			over = append(over, j)
		case p.OnFull == "drop-oldest" && j.Starts == 0:
			oldest = append(oldest, j)
		}
	}
	if len(over)+len(oldest) < need {
		return false
	}
	for _, j := range slices.Concat(over, oldest)[:need] {
		how := Dropped
		if len(over) > 0 {
			how, over = Expired, over[1:]
		}
		t.take(j)
		d.end(t, j, how)
	}
	return true
}
