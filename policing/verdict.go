package policing

import (
	"sync/atomic"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// Verdict is the answer of a chain to one request. A refusal is an answer, not an error.
type Verdict struct {
	// Allowed says whether the request passes: every rule let it.
	Allowed bool

	// Refused is the name of the rule that refused: of several the one with the longest
	// wait. Empty when Allowed.
	Refused string

	// Unavailable says that the request was refused because Redis is away, not because it was too
	// much: in HTTP a 503, not a 429.
	Unavailable bool

	// Degraded says that Redis did not answer, and the rules' failure policies decided.
	Degraded bool

	// RetryAfter is the shortest wait after which the same request would pass every rule, if no
	// other came in between: 0 when Allowed, buckets.Never when it costs more than a limit. When
	// Unavailable it is a hint: the time until Redis is tried again.
	RetryAfter time.Duration

	// Remaining is how many requests of weight 1 would pass all rules now, after this one.
	// Rules that were not asked do not count; -1 when none was.
	Remaining int64

	// Rulings has one entry for each rule that applied, in the order of the chain.
	Rulings []Ruling
}

// Ruling is what one rule had to say.
type Ruling struct {
	// Rule is the rule, with the name it goes by and the parameters in force.
	Rule Rule

	// Asked says that the rule decided, in Redis or in memory. Otherwise its failure policy alone
	// did, or another rule's refused before this rule was asked, and the Decision says no more than
	// Allowed.
	Asked bool

	// Decision says in Allowed whether the rule alone would have let the request pass. When another
	// rule refused, the rest says what is left with nothing taken.
	buckets.Decision
}

// settle fills in what follows from the rulings.
func (v *Verdict) settle() {
	v.Allowed, v.Remaining = true, -1
	for _, r := range v.Rulings {
		if r.Asked {
			left := r.Remaining / max(1, r.Rule.Cost)
			if v.Remaining < 0 || left < v.Remaining {
				v.Remaining = left
			}
		}
		if r.Allowed {
			continue
		}
		if v.Allowed || longer(r.RetryAfter, v.RetryAfter) {
			v.Refused, v.RetryAfter = r.Rule.Name, r.RetryAfter
		}
		v.Allowed = false
	}
}

// longer reports whether a is the longer wait; nothing is longer than never.
func longer(a, b time.Duration) bool {
	if a == buckets.Never || b == buckets.Never {
		return b != buckets.Never
	}
	return a > b
}

// Judge returns the verdict that follows from rulings, which it keeps: for a Checker other than
// ours, such as a queue whose script asks the rules.
func Judge(rulings []Ruling) Verdict {
	v := Verdict{Rulings: rulings}
	v.settle()
	return v
}

// Counts is what a Policer has decided since it was made. Looks (weight 0) do not count.
// Allowed + Refused + Unavailable is how many were offered.
type Counts struct {
	Allowed     int64 // requests that passed, with or without Redis
	Refused     int64 // that were too much
	Unavailable int64 // that were refused because Redis was away

	Degraded int64 // of all these, decided by the failure policies
	Unasked  int64 // of the allowed, those that a rule with FailOpen let pass unasked

	// Open says that Redis has failed and is being left alone; now and then a call tries it.
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
