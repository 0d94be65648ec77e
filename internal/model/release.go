package model

import (
	"maps"
	"strings"
	"time"
)

// Ticket says "wake up for this tenant". It was released for one job, and starts whichever of the
// tenant's jobs that are out is the oldest.
type Ticket struct {
	Tenant, ID string
	Release    int64 // how many tickets were released for that job
}

// Release hands out up to limit tickets for jobs that may leave within the lead: as many as live
// pools have free places, in fair order. A job whose ticket does not come to the gate within ttl
// comes back. trip is a round trip of the caller to Redis. wait is how many µs the scheduler may
// sleep, -1 = until it is woken; more tells it to call again at once.
func (d *Downstream) Release(limit int, ttl, trip time.Duration) (tickets []Ticket, wait int64, more bool) {
	d.reaches(min(2*trip+3*d.Far, d.maxLead()-d.Policy.Lead))
	credit := d.credited(ttl)
	d.lost()
	refiling := d.refile()
	for i := 0; i < sweeps && d.sweep(0) > 0; i++ {
	}
	v := d.visit()
	v.promote()
	free := d.Free()
	maps.DeleteFunc(d.Pools, func(_ string, p *Pool) bool { return p.Deadline < d.Now-60_000_000 })
	room := min(free, d.creditLeft(credit, ttl))
	for len(tickets) < limit && int64(len(tickets)) < room {
		t, j := v.pick(false)
		if t == nil {
			break
		}
		j.State, j.At = Out, d.Now+ttl.Microseconds()
		d.Out.put(t.Name+" "+j.ID, j.At)
		t.Outs.put(j.ID, j.Since)
		t.OutN++
		d.enters(t, j)
		d.picked(t)
		tickets = append(tickets, Ticket{t.Name, j.ID, j.Releases})
	}
	d.Sent = int64(d.Out.Len())
	again := Forever
	if int64(len(tickets)) >= room {
		again = d.Now + look(ttl)
	}
	wait, more = d.next(int64(len(tickets)) >= free, again)
	return tickets, wait, more || refiling || len(tickets) == limit
}

// next is when the next call makes sense. A job that waits for a place is woken by the job that
// leaves one; one that waits since no more tickets may be out is looked at `again`.
func (d *Downstream) next(full bool, again int64) (wait int64, more bool) {
	at := Forever
	if d.Until > d.Now {
		at = d.Until
	} else {
		if d.Due.Len() > 0 {
			at = d.Due.first().At - d.lead()
		}
		if d.Ready.Len() > 0 && !full {
			if again < Forever {
				at = min(at, again)
			} else if turn := d.SharedTurn(); turn > d.Now+d.lead() {
				at = min(at, turn-d.lead())
			} else {
				more = true
			}
		}
	}
	if at >= Forever {
		return -1, more
	}
	return max(at-d.Now, 0), more
}

// lost brings back jobs whose tickets never came, and those whose leases are over.
//
// If Redis was away, or all schedulers were, so perhaps were the beats of workers that are alive.
// Leases that ended meanwhile, or end just now, are not over until those workers have had time to
// beat again. Leases that had ended before are. If Redis restarts again before they had that time,
// they get it then.
func (d *Downstream) lost() {
	lease := d.Policy.Lease.Microseconds()
	silence := min(5_000_000, max(2_000_000, lease/2))
	last, restarted := d.LastRelease, d.Epoch > d.LastRelease
	if last > 0 && (restarted || d.Now-last > silence) {
		if !restarted || last >= d.SparedUntil {
			d.SparedFrom = last
		}
		d.SparedUntil = d.Now + min(4_000_000, lease)
	}
	over := d.Now
	if d.Now < d.SparedUntil {
		over = d.SparedFrom
	}
	d.LastRelease = d.Now

	each := func(b *Book, until int64, f func(t *Tenant, j *Job)) {
		for _, l := range b.until(until) {
			tenant, id, _ := strings.Cut(l.Name, " ")
			t := d.Tenants[tenant]
			f(t, t.Jobs[id])
			d.file(t)
		}
	}
	each(d.Out, d.Now, func(t *Tenant, j *Job) {
		d.left(t, j)
		t.toFront(j)
		d.count(t, "lost_tickets")
	})
	each(d.Running, over, d.crashed)
}
