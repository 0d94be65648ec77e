package model

import (
	"math"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// lead is how long before its likely slot a ticket leaves; a worker then holds it when the slot
// comes.
func (d *Downstream) lead() int64 {
	return (d.Policy.Lead + min(d.Reach, d.maxLead()-d.Policy.Lead)).Microseconds()
}

// calm is for how long the lead is promised not to get longer.
const calm int64 = 5_000_000

// reaches makes the lead longer than the policy's, since round trips to Redis take time. It may stay
// too long: what waits out a delay or a pause is filed by it, and is filed anew when it gets shorter.
// While all is well it is promised not to get longer for a while, so that after a restart it is known
// how far ahead slots were granted that were forgotten.
func (d *Downstream) reaches(reach time.Duration) {
	longer := reach > d.Reach
	d.Calm = min(d.Calm, d.Now+calm)
	switch {
	case longer && d.Now > d.Calm:
		d.Reach, longer = reach, false
	case reach < d.Reach/2-5*time.Millisecond:
		d.Reach = reach
		d.refiled, d.refiling = "", true
	}
	if !longer && d.Alive >= d.Now {
		d.Calm = d.Now + calm
	}
}

// forgotten is how far ahead of a restart a slot may lie whose grant was forgotten.
func (d *Downstream) forgotten() int64 {
	longest := (d.Policy.Lead + d.maxLead() + d.Policy.Tolerance).Microseconds()
	ahead := longest
	if d.Now <= d.Calm {
		ahead = d.Hold()
	}
	return min(longest, max(ahead, d.Epoch+d.Ahead-d.Now))
}

func (d *Downstream) maxLead() time.Duration { return max(d.Policy.Lead, d.Policy.MaxLead) }

// Hold is how far ahead of a call its slot may lie; a worker waits no longer than that for it.
func (d *Downstream) Hold() int64 {
	return d.lead() + (d.Policy.Lead + d.Policy.Tolerance).Microseconds()
}

// Need is how far ahead a slot must lie so that the furthest worker hears of it in time: the answer's
// way, less what a start is late there anyway.
func (d *Downstream) Need() int64 {
	return min(d.Hold(), max(0, (2*d.Far-3*d.Policy.Tolerance).Microseconds()/4))
}

// first is the longest that a tenant of which nothing is known waits after a restart.
const first = 10 * time.Second

// terms of a tenant; nil is the downstream. Lateness of up to half a tolerance is made up.
func (d *Downstream) terms(t *Tenant) buckets.Terms {
	terms := buckets.Terms{Grace: d.Policy.Tolerance / 2, Epoch: d.Epoch, Ahead: time.Duration(d.Ahead) * time.Microsecond}
	if t != nil && !t.filed {
		terms.Most = first
	}
	return terms
}

func (d *Downstream) shared() bool { return !d.Policy.Rate.IsZero() }

// slot is what a start of t gets now: the first instant that suits its own timeline, and the
// downstream's where that has a rate, and that the furthest worker can use.
func (d *Downstream) slot(t *Tenant) int64 {
	slot := t.Timeline.Earliest(d.Limits(t).Rate, d.Now, d.terms(t))
	if d.shared() {
		slot = max(slot, d.Timeline.Earliest(d.Policy.Rate, d.Now, d.terms(nil)))
	}
	if d.Need() > 0 {
		slot = max(slot, d.Now+d.Need())
	}
	return slot
}

// kept is how much later than its turn a slot of t may be while t keeps its place on its own
// timeline.
func (d *Downstream) kept(t *Tenant) int64 {
	if !d.Policy.Shared || !d.shared() {
		return 0
	}
	return int64(math.Floor(min(step(d.Policy.Rate), step(d.Limits(t).Rate))))
}

// take takes a slot off both timelines.
func (d *Downstream) take(t *Tenant, slot int64) {
	terms := d.terms(t)
	terms.Keep = time.Duration(d.kept(t)) * time.Microsecond
	t.Timeline = t.Timeline.Grant(d.Limits(t).Rate, slot, d.Now, terms)
	if d.shared() {
		d.Timeline = d.Timeline.Grant(d.Policy.Rate, slot, d.Now, d.terms(nil))
	}
}

// Turn is when the next ticket of t would start if it were released now: after those that are out,
// by its own timeline.
func (d *Downstream) Turn(t *Tenant) int64 {
	return d.turn(t.Timeline, d.Limits(t).Rate, t.OutN, d.terms(t))
}

// SharedTurn is the same by the timeline of the downstream; without a rate it is now.
func (d *Downstream) SharedTurn() int64 {
	if !d.shared() {
		return d.Now
	}
	return d.turn(d.Timeline, d.Policy.Rate, int64(d.Out.Len()), d.terms(nil))
}

func (d *Downstream) turn(tl buckets.Timeline, r buckets.Rate, out int64, terms buckets.Terms) int64 {
	return max(tl.Earliest(r, d.Now, terms), d.Now) + int64(math.Floor(float64(out)*step(r)))
}

// step is an interval in µs, as a double: enough for what is only likely, and what the scripts use.
func step(r buckets.Rate) float64 { return float64(r.Period.Microseconds()) / float64(r.Events) }
