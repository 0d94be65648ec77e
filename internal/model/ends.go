package model

import "time"

// What a call takes off a tenant's ends at most, and how often Release does so.
const (
	take   = 8
	sweeps = 5
)

// remember keeps the end of a job. Where a tenant has more of them than it may, its oldest is
// forgotten; where the downstream has, the one that would be over next of each tenant's oldest.
//
// The scripts keep the ends of a tenant in pages, by ids, and forget the oldest of a page: that is
// the same up to 64 ends.
func (d *Downstream) remember(t *Tenant, j *Job) {
	d.sweep(1)
	keep := (d.Limits(t).Retention + time.Second - 1).Truncate(time.Second)
	j.Over = d.Now + keep.Microseconds()
	t.Ends = append(t.Ends, j)
	d.ends++
	if len(t.Ends) == 1 {
		d.oldest.put(t.Name, j.Over)
	}
	if n := len(t.Ends) - int(d.Limits(t).MaxEnds); n > 0 {
		d.shorten(t, n)
	}
}

// shorten forgets a tenant's oldest ends: those that are over, and others until it has forgotten
// surplus, which are counted. It returns how many.
func (d *Downstream) shorten(t *Tenant, surplus int) (n int) {
	for ; n < take && n < len(t.Ends); n++ {
		j := t.Ends[n]
		if j.Over > d.Now {
			if n >= surplus {
				break
			}
			d.count(t, "evicted")
		}
		if t.Jobs[j.ID] == j {
			delete(t.Jobs, j.ID)
		}
	}
	t.Ends = t.Ends[n:]
	d.ends -= n
	d.oldest.drop(t.Name)
	if len(t.Ends) > 0 {
		d.oldest.put(t.Name, t.Ends[0].Over)
	}
	return n
}

// sweep forgets ends of one tenant, if one is over, or the downstream has too many with those that
// are coming.
func (d *Downstream) sweep(coming int) int {
	if d.oldest.Len() == 0 {
		return 0
	}
	first, surplus := d.oldest.first(), d.ends+coming-int(d.Policy.MaxEnds)
	if surplus <= 0 && first.At > d.Now {
		return 0
	}
	return d.shorten(d.Tenants[first.Name], surplus)
}

// forget forgets how a job ended.
func (d *Downstream) forget(t *Tenant, j *Job) {
	for i, e := range t.Ends {
		if e != j {
			continue
		}
		t.Ends = append(t.Ends[:i:i], t.Ends[i+1:]...)
		d.ends--
		if i == 0 {
			d.shorten(t, 0)
		}
		return
	}
}

// remembered returns a job that has not ended, or whose end is not over; or nil.
func (d *Downstream) remembered(t *Tenant, id string) *Job {
	if j := t.Jobs[id]; j != nil && !(j.Ended() && j.Over <= d.Now) {
		return j
	}
	return nil
}
