package shaper

import (
	"math/big"

	"github.com/jobshaper/jobshaper/buckets"
)

// exact is a timeline by the book: instants are exact rationals of a µs. It is written from the promise, not from the
// script: slots one interval apart, idle time earns nothing, a lateness of up to grace is made up.
type exact struct {
	granted bool
	last    *big.Rat // the exact departure that the last slot stands for
	seen    int64
	rate    buckets.Rate
}

func interval(r buckets.Rate) *big.Rat { return big.NewRat(r.PeriodMicros(), r.Events) }

// up rounds up to the µs: a slot is never early.
func up(r *big.Rat) int64 {
	q, m := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

func whole(us int64) *big.Rat { return new(big.Rat).SetInt64(us) }

// at brings the timeline to a call at now under rate r, on a Redis that has forgotten nothing since epoch.
func (e *exact) at(r buckets.Rate, now, epoch int64) (next *big.Rat) {
	switch {
	case !e.granted:
		next = whole(0)
	case now < e.seen: // the clock stepped back: what lay ahead of the grant lies ahead of now
		e.last = whole(up(e.last) - e.seen + now)
		e.seen, e.rate = now, r
		next = new(big.Rat).Add(e.last, interval(r))
	case e.rate != r: // slots are whole µs, and the new rate counts from the last one
		next = new(big.Rat).Add(whole(up(e.last)), interval(r))
	default:
		next = new(big.Rat).Add(e.last, interval(r))
	}
	if !e.granted || e.seen < epoch {
		if h := new(big.Rat).Add(whole(epoch+hold), interval(r)); h.Cmp(next) >= 0 {
			next = h
		}
	}
	return next
}

// earliest is the slot that a grant at now would get.
func (e *exact) earliest(r buckets.Rate, now, epoch, grace int64) int64 {
	if n := up(e.at(r, now, epoch)); n >= now-grace {
		return n
	}
	return now
}

// grant takes slot, which may be later than the earliest one when something else binds.
func (e *exact) grant(r buckets.Rate, slot, now, epoch int64) {
	next := e.at(r, now, epoch)
	if up(next) != slot {
		next = whole(slot)
	}
	e.granted, e.last, e.seen, e.rate = true, next, now, r
}

// likely is when the ticket after out others would start.
func (e *exact) likely(r buckets.Rate, out, now, epoch, grace int64) int64 {
	ahead := new(big.Rat).Mul(interval(r), whole(out))
	down := new(big.Int).Quo(ahead.Num(), ahead.Denom()).Int64()
	return max(e.earliest(r, now, epoch, grace), now) + down
}
