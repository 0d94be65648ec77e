package model

import "slices"

// Waiting lists the ids that wait for their turn, head first.
func (t *Tenant) Waiting() (ids []string) {
	for _, l := range t.Back.Lines() {
		ids = append(ids, l.Name)
	}
	return append(ids, t.Fresh...)
}

func (t *Tenant) waiting() int64 { return int64(t.Back.Len() + len(t.Fresh)) }

// Level is how many jobs count against the depth: what waits, and what is not due yet.
func (t *Tenant) Level() int64 { return t.waiting() + int64(t.Later.Len()) }

// position is a job's place in the bucket, from 1; 0 = it does not wait.
func (t *Tenant) position(id string) int { return slices.Index(t.Waiting(), id) + 1 }

// toFront puts back what was out: ahead of all that never was, and among others that were, in the
// order of acceptance.
func (t *Tenant) toFront(j *Job) {
	j.State = Waiting
	t.Back.put(j.ID, j.Since)
}

// later lets a job wait until it is due.
func (t *Tenant) later(j *Job, s State, at int64) {
	j.State, j.At = s, at
	t.Later.put(j.ID, at)
}

// take takes a job out of the bucket, wherever it is.
func (t *Tenant) take(j *Job) {
	if t.Back.drop(j.ID) || t.Later.drop(j.ID) {
		return
	}
	if i := slices.Index(t.Fresh, j.ID); i >= 0 {
		t.Fresh = slices.Delete(t.Fresh, i, i+1)
	}
}

// pop takes the head of the bucket; nil if nothing waits.
func (t *Tenant) pop() *Job {
	var id string
	switch {
	case t.Back.Len() > 0:
		id = t.Back.first().Name
		t.Back.drop(id)
	case len(t.Fresh) > 0:
		id, t.Fresh = t.Fresh[0], t.Fresh[1:]
	default:
		return nil
	}
	return t.Jobs[id]
}

// ripen lets into the bucket what is due: what failed to the front, what was delayed to the back.
func (d *Downstream) ripen(t *Tenant) {
	for _, l := range t.Later.until(d.Now) {
		t.Later.drop(l.Name)
		if j := t.Jobs[l.Name]; j.State == Backoff {
			t.toFront(j)
		} else {
			j.State = Unseen
			t.Fresh = append(t.Fresh, j.ID)
		}
	}
}

// Overdue reports whether a job that was never started has waited longer than it may.
func (d *Downstream) Overdue(t *Tenant, j *Job) bool {
	wait := j.MaxWait
	if wait == 0 {
		wait = d.Limits(t).MaxWait
	}
	return j.Starts == 0 && wait > 0 && d.Now > j.Since+wait.Microseconds()
}

// end ends a job that is in no book any more.
func (d *Downstream) end(t *Tenant, j *Job, how State) {
	j.State, j.At = how, d.Now
	d.count(t, string(how))
	d.remember(t, j)
}

// bury keeps a job that does not start again.
func (d *Downstream) bury(t *Tenant, j *Job) {
	j.State, j.At = Dead, d.Now
	d.count(t, "dead")
}
