package shaper

import (
	"math/big"

	"github.com/jobshaper/jobshaper/buckets"
)

// exact is a timeline by the book: instants are exact rationals of a µs. It is written from the
// promise, not from the script: slots are one interval apart, idle time earns nothing, a lateness
// of up to grace is made up, and a grant that a restart may have made Redis forget counts as made,
// at the latest instant that it can have had.
type exact struct {
	granted bool
	last    *big.Rat // the exact departure that the last slot stands for
	slot    int64    // that slot
	seen    int64
	rate    buckets.Rate
	ahead   int64 // µs after the epoch before which a forgotten slot lies
	known   bool  // Redis held something of the tenant before it restarted last
}

func interval(r buckets.Rate) *big.Rat { return big.NewRat(r.Period.Microseconds(), r.Events) }

// up rounds up to the µs: a slot is never early.
func up(r *big.Rat) int64 {
	q, m := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

func whole(us int64) *big.Rat { return new(big.Rat).SetInt64(us) }

// at brings the timeline to a call at now under rate r, on a Redis that has forgotten nothing since
// epoch.
func (e exact) at(r buckets.Rate, now, epoch int64) exact {
	var kept *big.Rat // the next departure at the rate before
	if e.granted {
		kept = e.next()
	}
	switch {
	case e.granted && now < e.seen: // the clock stepped back: what lay ahead of the grant lies ahead of now
		kept.Add(kept, whole(now-e.seen))
		e.slot += now - e.seen
		e.last, e.rate = whole(e.slot), r
	case e.granted && e.rate != r: // slots are whole µs, and the new rate counts from the last one
		e.last, e.rate = whole(e.slot), r
	}
	if e.seen = min(e.seen, now); e.seen >= epoch {
		return e
	}
	e.seen = now
	// What was forgotten was no departure before the next one, and less than ahead after the
	// restart. Nobody knows at which of two rates.
	latest := whole(epoch + e.ahead)
	if e.granted && e.next().Cmp(latest) >= 0 && kept.Cmp(latest) >= 0 {
		return e
	}
	if first := whole(10 * second); !e.granted && !e.known && interval(r).Cmp(first) > 0 {
		latest.Add(latest, first).Sub(latest, interval(r))
		latest = whole(up(latest))
	}
	if up(new(big.Rat).Add(latest, interval(r))) >= now-mGrace {
		e.granted, e.last, e.slot, e.rate = true, latest, up(latest), r
	}
	return e
}

// settle keeps what at found of a restart or a step of the clock.
func (e *exact) settle(r buckets.Rate, now, epoch int64) {
	if now >= epoch && e.seen < epoch || e.granted && now < e.seen {
		*e = e.at(r, now, epoch)
	}
	e.known = true
}

// next is the earliest departure after those that were granted.
func (e exact) next() *big.Rat { return new(big.Rat).Add(e.last, interval(e.rate)) }

// earliest is the slot that a grant at now would get.
func (e exact) earliest(r buckets.Rate, now, epoch, grace int64) int64 {
	if e = e.at(r, now, epoch); e.granted {
		if n := up(e.next()); n >= now-grace {
			return n
		}
	}
	return now
}

// grant takes slot, which may be later than the earliest one when something else binds. A departure
// that was due up to keep before it counts as made then.
func (e *exact) grant(r buckets.Rate, slot, now, epoch, keep int64) {
	stands := whole(slot)
	if at := e.at(r, now, epoch); at.granted {
		if stands = whole(slot - keep); up(at.next()) >= slot-keep {
			stands = at.next()
		}
	}
	e.granted, e.last, e.slot, e.seen, e.rate = true, stands, slot, now, r
}

// likely is when the ticket after out others would start.
func (e *exact) likely(r buckets.Rate, out, now, epoch, grace int64) int64 {
	ahead := new(big.Rat).Mul(interval(r), whole(out))
	down := new(big.Int).Quo(ahead.Num(), ahead.Denom()).Int64()
	return max(e.earliest(r, now, epoch, grace), now) + down
}
