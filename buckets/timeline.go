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
// The zero value has granted nothing. A Timeline is a plain value: the rate is given with each
// call, and a changed one takes effect at once: the next departure is one new interval after the
// last slot.
//
// Clocks: instants are µs since the epoch. A clock that steps forward looks like idle time: the
// next job may leave at once, and only that one. Where it stepped back, what lay ahead at the last
// grant lies as far ahead now, since nobody can tell how much of it has passed.
//
// lua/timeline.lua is the same function over a Redis hash; one file of vectors tests both.
type Timeline struct {
	Slot int64 // the last slot granted, µs
	Next int64 // whole µs of the next departure
	Rem  int64 // and this many 1/Events µs
	Rate Rate  // that Next was computed with; zero when nothing was granted yet
	Seen int64 // the instant at which Slot was granted, to notice a clock that steps back
}

// Terms are what decides about a slot, besides the rate. The zero value is the textbook's queue.
type Terms struct {
	// Grace is how long ago a departure may have passed and still be granted as it stands, so that
	// lateness is made up and a backlog keeps its rate. Slots may then lie up to Grace before now.
	Grace time.Duration

	// Epoch is the instant, in µs, since which no grant was forgotten; 0 means that none ever was.
	// A grant made before it may have been; its slot lay less than Ahead after Epoch. A timeline
	// whose next departure is no earlier than that has forgotten none. Any other assumes that such
	// a slot was granted, at the latest possible instant, Epoch + Ahead, and grants its first an
	// interval later.
	Epoch int64
	Ahead time.Duration
	// Most bounds how long after Epoch + Ahead a timeline that has granted nothing waits; 0 means
	// an interval. It is for a timeline that is unlikely to have forgotten a grant.
	Most time.Duration

	// Keep is for departures that something else puts off, as a second queue behind this one does:
	// the next one still counts from when this one was due, or from Keep before its slot where that
	// is later. So up to Keep is made up, and slots may be that much nearer than an interval. Zero
	// counts from the slot.
	Keep time.Duration
}

// Earliest returns the slot that a grant at now would get, rounded up to the µs: the next
// departure, even if it passed up to Grace ago, else now. It changes nothing. The rate must be
// valid.
func (t Timeline) Earliest(r Rate, now int64, terms Terms) int64 {
	now = clampInstant(now)
	return t.at(r, now, terms).earliest(now, terms).ceil()
}

// Grant returns the timeline after slot was granted at the instant now. slot is what Earliest
// returned, or later, if something other than this timeline decided it. The next departure is
// exactly one interval after the departure that slot stands for, see Terms.Keep.
func (t Timeline) Grant(r Rate, slot, now int64, terms Terms) Timeline {
	now = clampInstant(now)
	t = t.at(r, now, terms)
	from, kept := span{us: slot}, slot-terms.Keep.Microseconds()
	if !t.Rate.IsZero() {
		if from = (span{t.Next, t.Rem}); from.ceil() < kept {
			from = span{us: kept}
		}
	}
	next := from.add(interval(r), r.Events)
	return Timeline{Slot: slot, Next: next.us, Rem: next.frac, Rate: r, Seen: now}
}

// Settled returns the timeline as it must be kept. It differs from t after an Epoch, when it
// includes the grant that was assumed, so that the next Epoch finds a departure that it need not
// put off again; and after a step back of the clock, so that the time until a departure runs from
// the step on.
func (t Timeline) Settled(r Rate, now int64, terms Terms) Timeline {
	now = clampInstant(now)
	if stepped := !t.Rate.IsZero() && now < t.Seen; !stepped && !terms.doubt(t) {
		return t
	}
	return t.at(r, now, terms)
}

// doubt reports whether the timeline has not been looked at since Epoch.
func (terms Terms) doubt(t Timeline) bool { return t.Seen < terms.Epoch }

// at brings the timeline up to now and to the rate that applies now.
func (t Timeline) at(r Rate, now int64, terms Terms) Timeline {
	granted, kept := !t.Rate.IsZero(), t.Next
	after := func(slot int64) {
		next := span{us: slot}.add(interval(r), r.Events)
		t.Slot, t.Next, t.Rem, t.Rate = slot, next.us, next.frac, r
	}
	switch {
	case granted && now < t.Seen:
		kept -= t.Seen - now
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
	// The rate may have changed before the grant was forgotten or after, so the nearer departure
	// counts.
	if granted && min(kept, t.Next) >= latest {
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

// earliest returns the exact departure that a grant at now would get. The timeline must be up to
// now.
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
