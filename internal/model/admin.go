package model

import (
	"slices"
	"strings"
)

// Cancel ends a job that has not ended. It returns the state that the job is in now: "cancelled";
// "running": its worker was told, and unless it succeeds all the same, it will not start again;
// another end, or "dead": the call came too late; "": the job is unknown.
func (d *Downstream) Cancel(tenant, id string) string {
	t := d.Tenant(tenant)
	j := d.remembered(t, id)
	switch {
	case j == nil:
		return ""
	case j.Ended():
		return string(j.State)
	case j.State == Dead:
		return "dead"
	case j.State == Running || j.State == Cancelling:
		j.State = Cancelling
		return "running"
	}
	d.left(t, j)
	t.take(j)
	d.end(t, j, Cancelled)
	d.file(t)
	return string(Cancelled)
}

// Purge cancels all that waits in a tenant's bucket, or is not due yet, newest first, and returns
// how many there were.
func (d *Downstream) Purge(tenant string) (n int) {
	t := d.Tenant(tenant)
	ids := t.Waiting()
	slices.Reverse(ids)
	for _, l := range slices.Backward(t.Later.Lines()) {
		ids = append(ids, l.Name)
	}
	for _, id := range ids {
		t.take(t.Jobs[id])
		d.end(t, t.Jobs[id], Cancelled)
	}
	d.file(t)
	return len(ids)
}

// RequeueDead brings dead jobs back to the front, with all their attempts before them, and returns
// how many. Dead is an end, so what comes back from it is bound by the depth like any arrival: full
// says that it stopped for that.
func (d *Downstream) RequeueDead(tenant string, ids ...string) (n int, full bool) {
	t := d.Tenant(tenant)
	defer d.file(t)
	for _, id := range ids {
		j := t.Jobs[id]
		if j == nil || j.State != Dead {
			continue
		}
		if t.Level() >= d.Limits(t).Depth {
			return n, true
		}
		j.Forgiven, j.Crashes, j.Throttles, j.Suspect, j.Blamed = j.Starts, 0, 0, 0, 0
		t.toFront(j)
		n++
	}
	return n, false
}

// ForgetDead ends dead jobs, and returns how many.
func (d *Downstream) ForgetDead(tenant string, ids ...string) (n int) {
	t := d.Tenant(tenant)
	for _, id := range ids {
		if j := t.Jobs[id]; j != nil && j.State == Dead {
			d.end(t, j, Removed)
			n++
		}
	}
	d.file(t)
	return n
}

// named returns the job called "tenant/id".
func (d *Downstream) named(name string) *Job {
	tenant, id, _ := strings.Cut(name, "/")
	return d.Job(tenant, id)
}
