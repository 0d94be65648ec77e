package model

// AllByTime is the ByTime of a tenant whose jobs all start by time alone: the largest depth.
const AllByTime = 10_000_000

// byTime is the place in its bucket up to which a tenant's jobs start by time alone, and not when
// other jobs end: all of them, unless as many are in flight as may be, or jobs run for so long that
// that many cannot keep the rate. While the rate is kept, being full for a moment means nothing:
// something left not long ago.
func (d *Downstream) byTime(t *Tenant) int64 {
	p, first := d.Limits(t), int64(AllByTime)
	gap, left := step(p.Rate), t.Timeline.Settled(p.Rate, d.Now, d.terms(t)).Slot // also what a restart may have forgotten
	if d.shared() {
		gap, left = max(gap, step(d.Policy.Rate)), max(left, d.Timeline.Slot)
	}
	bound := func(most, taken int64) {
		switch took := float64(t.Took); {
		case most <= 0:
		case t.Took >= 0 && took > float64(most)*gap:
			first = min(first, max(0, most-taken))
		case taken >= most && !(t.Took >= 0 && float64(d.Now-left) <= 2*gap+took):
			first = 0
		}
	}
	bound(p.MaxInFlight, t.inFlight())
	bound(d.Policy.MaxInFlight, d.inFlight())
	bound(d.Places, d.inFlight())
	return first
}

// joins is how many jobs may be put behind those that wait without filing the tenant anew: as many
// as find room and start by time alone, at the tenant's own rate, like those that wait before them.
func (d *Downstream) joins(t *Tenant) int64 {
	if !t.Busy || t.waiting() == 0 {
		return 0
	}
	p := d.Limits(t)
	room := p.Depth - t.Level()
	late := float64(t.Turn) < float64(d.Now)-2*step(p.Rate)-100_000
	if _, note := d.joined(t); note != NoteNone {
		return room
	}
	// None if the downstream has a rate, or if the head should have left and something holds it
	// back.
	if d.shared() || late && max(t.Until, d.Until) <= d.Now {
		return 0
	}
	return min(room, t.ByTime-t.waiting())
}

// joined is when the head of the jobs that others join leaves, or why nobody can say when they
// start.
func (d *Downstream) joined(t *Tenant) (first int64, note string) {
	paused := max(t.Until, d.Until)
	switch {
	case paused >= Forever:
		note = NotePaused
	case d.Alive < d.Now:
		note = NoteNoWorkers
	}
	return max(t.Turn, d.Now, paused), note
}
