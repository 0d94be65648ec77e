package model

import "math"

const (
	askAgain = 1_000_000  // µs after which a suspect that found no room asks again
	turn     = 10_000_000 // µs that others leave the next turn to it
)

// hasRoom reports whether a suspect may be in flight now. A job whose worker vanished while others
// ran beside it is a suspect of the first kind, and few of those are in flight at once: the square
// root of the places. If that happened again, or the job ran alone, no other suspect is. Who finds
// no room asks again later, and the one whose last start is the longest ago has the next turn.
func (d *Downstream) hasRoom(j *Job) bool {
	reserved := d.TurnUntil > d.Now
	if reserved && j.Slot > d.Turned {
		return false
	}
	if n := d.Apart.Len(); n > 0 && (j.Suspect > 1 || d.Apart.last().At > 1 || n >= int(math.Sqrt(float64(d.Places)))) {
		d.Turned, d.TurnUntil = j.Slot, d.Now+turn
		return false
	}
	if reserved {
		d.Turned, d.TurnUntil = 0, 0
	}
	return true
}

// enters notes a suspect that is in flight from now on.
func (d *Downstream) enters(t *Tenant, j *Job) {
	if j.Suspect > 0 {
		d.Apart.put(t.Name+" "+j.ID, j.Suspect)
	}
}

// crashed: the worker of a job has vanished. The job comes back, until it was to blame too often:
// it was all that its pool ran, or the only suspect in flight. Else it is a suspect, as are those
// that ran beside it, whose leases may end later.
func (d *Downstream) crashed(t *Tenant, j *Job) {
	pool := PoolOf(j.Token)
	beside, blamed, word := d.runs[pool] > 1, j.Suspect == 2, "suspect"
	if !beside && !d.Fell[pool] {
		blamed = true
	}
	if blamed {
		word = "blamed"
	}
	if beside {
		d.Fell[pool] = true
	}
	d.log("x", t.Name, j.ID, j.Starts, d.Now-j.Slot, word)
	d.left(t, j)
	d.began(t, j)
	d.count(t, "crashed")
	if j.State == Cancelling {
		d.end(t, j, Cancelled)
		return
	}
	j.Crashes++
	j.Forgiven++
	j.Token = "-" // its worker, if it is still alive, is told that it came too late
	if blamed {
		j.Suspect = 2
		j.Blamed++
	} else {
		j.Suspect = min(2, j.Suspect+1)
		d.count(t, "suspected")
	}
	if j.Blamed >= d.Policy.MaxCrashes {
		d.bury(t, j)
	} else {
		t.toFront(j)
	}
}
