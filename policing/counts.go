package policing

import "sync/atomic"

// Counts is what a Policer has decided since it was made. Looks (weight 0) do not count.
// Allowed + Refused + Unavailable is how many were offered.
type Counts struct {
	Allowed     int64 // requests that passed, with or without Redis
	Refused     int64 // that were too much
	Unavailable int64 // that were refused because Redis was away

	Degraded int64 // of all these, decided by the failure policies
	Unasked  int64 // of the allowed, those that a rule with FailOpen let pass unasked

	// Open says that Redis has failed and is being left alone; a call every now and then tries.
	Open bool
}

type counters struct{ allowed, refused, unavailable, degraded, unasked atomic.Int64 }

func (c *counters) add(v Verdict) {
	switch {
	case v.Allowed:
		c.allowed.Add(1)
	case v.Unavailable:
		c.unavailable.Add(1)
	default:
		c.refused.Add(1)
	}
	if !v.Degraded {
		return
	}
	c.degraded.Add(1)
	for _, r := range v.Rulings {
		if v.Allowed && !r.Asked {
			c.unasked.Add(1)
			return
		}
	}
}

// Counts returns the counts so far.
func (p *Policer) Counts() Counts {
	return Counts{
		Allowed:     p.counts.allowed.Load(),
		Refused:     p.counts.refused.Load(),
		Unavailable: p.counts.unavailable.Load(),
		Degraded:    p.counts.degraded.Load(),
		Unasked:     p.counts.unasked.Load(),
		Open:        p.guard != nil && p.guard.open(),
	}
}
