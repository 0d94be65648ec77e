package model

import (
	"slices"
	"time"
)

// Offer is a job that somebody offers.
type Offer struct {
	ID        string
	Body      string        // what the job is; the same id with another body is a conflict
	Call      string        // names this offer, so that a repeated call is known; no two offers have the same
	Delay     time.Duration // it is not due for so long from now
	NotBefore int64         // or before this instant; 0 = at once
	MaxWait   time.Duration // how long it may wait for its start; 0 = as the policy says, negative = for ever
}

// due is when the offer of a job made now is due.
func (o Offer) due(now int64) int64 {
	if o.NotBefore != 0 {
		return max(o.NotBefore, now)
	}
	return now + o.Delay.Microseconds()
}

// Answer is what the producer is told.
type Answer struct {
	Status   Status
	Position int    // in the bucket, from 1; 0 = it does not wait
	State    string // of the job that is known; "w" even for one that was never out, "" = there is none
	Start    int64  // when it starts or started, as far as can be said now; 0 = nobody can say
	Note     string // and why, see NotePaused
	Retry    int64  // µs after which to offer it again, if it was refused; -1 = never
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
// known is not taken again, unless it ended other than done: then it begins anew.
func (d *Downstream) Offer(tenant string, offers ...Offer) (out []Answer) {
	t := d.Tenant(tenant)
	e := d.estimate(t)
	// Jobs that only join those that wait change nothing about when the head may leave. The first
	// job that does more has the tenant filed anew, as that job and those after it leave it.
	joins, refile := d.joins(t), false
	first, note := d.joined(t)
	for i, o := range offers {
		if o.Delay > 0 || o.NotBefore != 0 || o.MaxWait != 0 || t.Jobs[o.ID] != nil {
			joins = 0
		}
		a, entered := e.offer(o, int64(i))
		if entered && joins <= 0 {
			refile = true
		} else if entered {
			if a.Start, a.Note = 0, note; note == NoteNone {
				a.Start = int64(float64(first) + float64(a.Position-1)*step(d.Limits(t).Rate))
			}
		}
		joins--
		out = append(out, a)
	}
	if refile {
		d.file(t)
	}
	return out
}

// offer offers the nth job of a call. entered says that it is in the bucket from now on.
func (e *estimate) offer(o Offer, nth int64) (a Answer, entered bool) {
	t := e.t
	if j := e.remembered(t, o.ID); j != nil {
		if a := e.standing(j, o); a.Status != "" {
			return a, false
		}
	}
	if !e.makeRoom(t) {
		a = Answer{Status: Full, Retry: e.untilRoom()}
		if e.Limits(t).OnFull == "block" {
			a.Status = Block
		}
		return a, false
	}
	j := &Job{Tenant: t.Name, ID: o.ID, Body: o.Body, Call: o.Call, Since: o.due(e.Now) + nth,
		MaxWait: o.MaxWait.Truncate(time.Millisecond), Token: "-", Next: "-"}
	if before := e.remembered(t, o.ID); before != nil {
		e.forget(t, before)
	}
	t.Jobs[o.ID] = j
	e.count(t, "accepted")
	a.Status = Accepted
	if due := o.due(e.Now); due > e.Now {
		t.later(j, Delayed, due)
		a.State = string(Delayed)
		a.Start, a.Note = e.delayed(due, false)
		return a, true
	}
	j.State = Unseen
	t.Fresh = append(t.Fresh, j.ID)
	a.State, a.Position = string(Waiting), int(t.waiting())
	a.Start, a.Note = e.nth(t.waiting())
	return a, true
}

// standing is the answer to an offer of a job that is known; without a Status it begins anew.
func (e *estimate) standing(j *Job, o Offer) Answer {
	t := e.t
	a := Answer{Status: Duplicate, Position: t.position(j.ID), State: string(j.State), Retry: -1}
	switch {
	case j.Body != o.Body:
		a.Status = Conflict
	case j.Call == o.Call:
		a.Status = Accepted
	case j.State == Dead:
		a.Status = IsDead
	case j.Ended() && j.State != Done:
		return Answer{}
	}
	switch j.State {
	case Unseen, Waiting:
		a.State = string(Waiting)
		a.Start, a.Note = e.nth(int64(a.Position))
	case Delayed, Backoff:
		a.Start, a.Note = e.delayed(j.At, j.State == Backoff)
	case Out:
		a.Start = e.turn(t.Timeline, e.Limits(t).Rate, int64(t.Outs.rank(j.ID)), e.terms(t))
	case Running, Cancelling:
		a.Start = j.Slot
	}
	return a
}

// makeRoom ends jobs that waited too long and, if the policy is to drop the oldest, those that have
// waited longest and were never started, if that makes room for one more.
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
