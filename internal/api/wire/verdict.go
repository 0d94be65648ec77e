package wire

import (
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/policing"
)

// Verdict is a policing.Verdict in JSON, times in µs.
type Verdict struct {
	Allowed     bool     `json:"allowed"`
	Refused     string   `json:"refused"`     // the rule that refused
	Unavailable bool     `json:"unavailable"` // refused because the store is away
	Degraded    bool     `json:"degraded"`    // the store is away: the rules' failure policies decided
	Remaining   int64    `json:"remaining"`   // of all rules; -1 = none was asked
	RetryAfter  int64    `json:"retry_after_us"`
	Rules       []Ruling `json:"rules"`
}

// Ruling is a policing.Ruling in JSON. Where the rule was not asked the numbers are 0.
type Ruling struct {
	Name       string `json:"name"`
	Rule       string `json:"rule"`
	Asked      bool   `json:"asked"`
	Allowed    bool   `json:"allowed"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_us"` // -1 = never
	ResetAfter int64  `json:"reset_after_us"`
}

// NewVerdict returns v in JSON.
func NewVerdict(v policing.Verdict) Verdict {
	out := Verdict{Allowed: v.Allowed, Refused: v.Refused, Unavailable: v.Unavailable, Degraded: v.Degraded,
		Remaining: v.Remaining, RetryAfter: Micros(v.RetryAfter), Rules: []Ruling{}}
	for _, r := range v.Rulings {
		out.Rules = append(out.Rules, Ruling{Name: r.Rule.Name, Rule: r.Rule.String(), Asked: r.Asked, Allowed: r.Allowed,
			Limit: r.Limit, Remaining: r.Remaining, RetryAfter: Micros(r.RetryAfter), ResetAfter: Micros(r.ResetAfter)})
	}
	return out
}

// Micros writes a wait as µs; -1 = never.
func Micros(d time.Duration) int64 {
	if d == buckets.Never {
		return -1
	}
	return d.Microseconds()
}
