package model

import (
	"strings"
	"time"
)

// Held is a start that a pool says it owns, and whether its handler has begun.
type Held struct {
	Tenant, ID, Token string
	Begun             bool
}

// Standing is what a pool learns of a start.
type Standing int

const (
	LeaseLost      Standing = 0 // somebody else may run the job by now
	LeaseHeld      Standing = 1
	LeaseCancelled Standing = 2 // held, and somebody cancelled the job
)

// Beat says that a pool is alive for another ttl, how many places it has, and which starts it owns;
// their leases are extended. trip is a round trip of the pool to Redis.
func (d *Downstream) Beat(pool string, places int, ttl, trip time.Duration, own []Held) []Standing {
	out := make([]Standing, len(own))
	for i, h := range own {
		j := d.Job(h.Tenant, h.ID)
		if !j.Owned(h.Token) {
			continue
		}
		t := d.Tenants[h.Tenant]
		d.lease(t, j)
		if h.Begun { // a long job's start is counted while it runs
			d.began(t, j)
		}
		out[i] = LeaseHeld
		if j.State == Cancelling {
			out[i] = LeaseCancelled
		}
	}
	d.Pools[pool] = &Pool{int64(places), d.Now + ttl.Microseconds(), trip}
	d.Places, d.Alive, d.Far = 0, 0, 0
	for _, p := range d.Pools {
		if p.Places > 0 && p.Deadline >= d.Now {
			d.Places += p.Places
			d.Alive = max(d.Alive, p.Deadline)
			d.Far = max(d.Far, p.Trip)
		}
	}
	return out
}

// lease gives a running job to its worker for a lease, counted from its slot or from now.
func (d *Downstream) lease(t *Tenant, j *Job) {
	j.At = max(j.Slot, d.Now) + d.Policy.Lease.Microseconds()
	d.Running.put(t.Name+" "+j.ID, j.At)
}

// Free is how many tickets live pools and the downstream's cap leave room for. A job of a pool that
// vanished takes no place of a pool that is there.
func (d *Downstream) Free() int64 {
	free := -int64(d.Out.Len())
	for name, p := range d.Pools {
		if p.Deadline >= d.Now {
			free += max(0, p.Places-d.runs[name])
		}
	}
	if most := d.Policy.MaxInFlight; most > 0 {
		free = min(free, most-d.inFlight())
	}
	return free
}

// PoolOf is the pool that a token belongs to: what comes before the dot.
func PoolOf(token string) string { pool, _, _ := strings.Cut(token, "."); return pool }
