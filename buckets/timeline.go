package buckets

import "time"

// Timeline is the sequence of departures of a leaky bucket used as a queue: exact instants, at
// least one interval (Period/Events of the rate) apart. The first may be now; idle time earns
// nothing, so a pause is never followed by a burst.
//
// It is the "virtual scheduling" form of the generic cell rate algorithm (ITU-T I.371). The next
// departure is kept with its remainder in 1/Events µs, so the slots of 7/s are k × 1/7 s, and the
// 700th after the first is exactly 100 s after it.
//
// The zero value has granted nothing. A Timeline is a plain value: give the rate with each call,
// and a changed one holds at once: the next departure is one new interval after the last slot.
//
// Clocks: instants are µs since the epoch. A clock that steps forward looks like idle time: the
// next may leave at once, and no more than that one. Where it stepped back, what lay ahead of the
// last grant lies as far ahead of now, since nobody can tell how much of it has passed.
//
// lua/timeline.lua is the same function over a Redis hash; one file of vectors holds both.
type Timeline struct {
	Slot int64 // the last slot granted, µs
	Next int64 // whole µs of the next departure
	Rem  int64 // and this many 1/Events µs
	Rate Rate  // that Next was computed with; zero when nothing was granted yet
	Seen int64 // the instant at which Slot was granted, to notice a clock that steps back
}

// Terms are what decides about a slot besides the rate. The zero value is the textbook's queue.
type Terms struct {
	// Grace is how long ago a departure may have passed and still be granted as it stands, so that
	// lateness is made up and a backlog keeps its rate. Slots may then lie up to Grace before now.
	Grace time.Duration

	// Epoch is the instant, µs, since when no grant was forgotten; 0 means that none ever was. Of
	// one that was made before, the slot lay less than Ahead behind Epoch. A timeline whose next
	// departure is later than that has forgotten none. Any other takes such a slot for granted, at
	// the latest instant at which it can have been: the first one is an interval after that.
	Epoch int64
	Ahead time.Duration
	// Most is how long after Epoch and Ahead a timeline that has granted nothing waits at most; 0
	// is an interval. It is for one of which it is not likely that a grant was forgotten.
	Most time.Duration
}

// Earliest returns the slot that a grant at now would get, rounded up to the µs: the next
// departure, also if it passed no longer than Grace ago, else now. It changes nothing. The rate
// must be valid.
func (t Timeline) Earliest(r Rate, now int64, terms Terms) int64 {
	now = clampInstant(now)
	return t.at(r, now, terms).earliest(now, terms).ceil()
}

// Grant returns the timeline in which slot is taken at the instant now: what Earliest returned, or
// a later one, if something else than this timeline decided it. The next departure is one exact
// interval after the departure that slot stands for.
func (t Timeline) Grant(r Rate, slot, now int64, terms Terms) Timeline {
	now = clampInstant(now)
	t = t.at(r, now, terms)
	from := span{us: slot}
	if next := (span{t.Next, t.Rem}); next.ceil() == slot {
		from = next
	}
	next := from.add(interval(r), r.Events)
	return Timeline{Slot: slot, Next: next.us, Rem: next.frac, Rate: r, Seen: now}
}

// Settled returns the timeline as it is to be kept. It differs from t after an Epoch, for which it
// has what was taken for granted, so that the next Epoch finds a departure that it need not put off
// again; and after a step back of the clock, so that the time until a departure runs from the step
// on.
func (t Timeline) Settled(r Rate, now int64, terms Terms) Timeline {
	now = clampInstant(now)
	if stepped := !t.Rate.IsZero() && now < t.Seen; !stepped && !terms.doubt(t) {
		return t
	}
	return t.at(r, now, terms)
}

// doubt reports whether the timeline was not looked at since Epoch.
func (terms Terms) doubt(t Timeline) bool { return t.Seen < terms.Epoch }

// at brings the timeline up to now and to the rate that applies now.
func (t Timeline) at(r Rate, now int64, terms Terms) Timeline {
	granted := !t.Rate.IsZero()
	after := func(slot int64) {
		next := span{us: slot}.add(interval(r), r.Events)
		t.Slot, t.Next, t.Rem, t.Rate = slot, next.us, next.frac, r
	}
	switch {
	case granted && now < t.Seen:
		after(t.Slot - (t.Seen - now))
	case granted && t.Rate != r:
		after(t.Slot)
	}
	t.Seen = min(t.Seen, now)
	if !terms.doubt(t) {
		return t
	}
	t.Seen = now
	latest := terms.Epoch + terms.Ahead.Microseconds()
	if granted && t.Next >= latest {
		return t
	}
	iv, most := interval(r), terms.Most.Microseconds()
	if !granted && most > 0 && iv.us > most {
		latest -= iv.us - most
	}
	if held := (span{us: latest}).add(iv, r.Events); held.ceil() >= now-terms.Grace.Microseconds() {
		after(latest)
	}
	return t
}

// earliest is the exact departure that a grant at now would get, of a timeline that is up to now.
func (t Timeline) earliest(now int64, terms Terms) span {
	next := span{t.Next, t.Rem}
	if t.Rate.IsZero() || next.ceil() < now-terms.Grace.Microseconds() {
		return span{us: now}
	}
	return next
}

// interval of a valid rate; none exceeds MaxSpan.
func interval(r Rate) span {
	i, _ := r.span(1)
	return i
}
