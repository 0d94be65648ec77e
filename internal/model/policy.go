package model

import (
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// Policy is how one tenant is shaped. A zero field is not set: the downstream's Defaults apply, and
// after them DefaultPolicy.
type Policy struct {
	Rate         buckets.Rate
	Depth        int64
	Weight       int64
	OnFull       string // "reject", "block" or "drop-oldest"
	MaxInFlight  int64
	MaxAttempts  int64
	MaxThrottles int64
	MaxWait      time.Duration // negative = for ever
	Retention    time.Duration // how long the id of a job that ended is known
	MaxEnds      int64         // of how many
}

// DefaultPolicy applies where nothing else is set.
var DefaultPolicy = Policy{Rate: buckets.PerSecond(10), Depth: 1000, Weight: 1, OnFull: "reject",
	MaxInFlight: 1000, MaxAttempts: 5, MaxThrottles: 100, MaxWait: -1,
	Retention: time.Hour, MaxEnds: 100_000}

// DownstreamPolicy is how a downstream is protected as a whole.
type DownstreamPolicy struct {
	Rate        buckets.Rate // all tenants together; zero = no limit of its own
	Shared      bool         // only Rate keeps every start apart; a tenant keeps its place when it is put off
	MaxInFlight int64        // 0 = as many as the workers have places
	Tolerance   time.Duration
	Lead        time.Duration
	MaxLead     time.Duration
	Lease       time.Duration
	MaxCrashes  int64
	MaxEnds     int64  // ended jobs whose ids are known, of all tenants
	Log         bool   // whether there is a departure log
	Defaults    Policy // for every tenant's unset fields
}

// or returns p with every field that is not set taken from q.
func (p Policy) or(q Policy) Policy {
	fill(&p.Rate, q.Rate)
	fill(&p.Depth, q.Depth)
	fill(&p.Weight, q.Weight)
	fill(&p.OnFull, q.OnFull)
	fill(&p.MaxInFlight, q.MaxInFlight)
	fill(&p.MaxAttempts, q.MaxAttempts)
	fill(&p.MaxThrottles, q.MaxThrottles)
	fill(&p.MaxWait, q.MaxWait)
	fill(&p.Retention, q.Retention)
	fill(&p.MaxEnds, q.MaxEnds)
	return p
}

// fill gives v the value d if it has none.
func fill[T comparable](v *T, d T) {
	if *v == *new(T) {
		*v = d
	}
}

// Limits is the policy that applies to a tenant.
func (d *Downstream) Limits(t *Tenant) Policy {
	return t.Policy.or(d.Policy.Defaults).or(DefaultPolicy)
}

// SetDownstream gives the downstream another policy. It applies at once, to the backlog too: every
// tenant that has jobs is filed anew, a few at each Release.
func (d *Downstream) SetDownstream(p DownstreamPolicy) {
	fill(&p.Tolerance, 20*time.Millisecond)
	fill(&p.Lead, 20*time.Millisecond)
	fill(&p.MaxLead, 300*time.Millisecond)
	fill(&p.Lease, 15*time.Second)
	fill(&p.MaxCrashes, 3)
	fill(&p.MaxEnds, 1_000_000)
	opened := p.Log && !d.Policy.Log
	d.Policy = p
	if d.shared() {
		terms := d.terms(nil)
		terms.Most = first // a rate that was there at a restart was settled then
		d.Timeline = d.Timeline.Settled(p.Rate, d.Now, terms)
	}
	if opened {
		d.log("o")
	}
	d.refiled = ""
	d.refiling = true
}

// SetTenant sets those fields of a tenant's policy that are set in p. They apply at once, to the
// backlog too.
func (d *Downstream) SetTenant(tenant string, p Policy) {
	t := d.Tenant(tenant)
	t.Policy = p.or(t.Policy)
	d.file(t)
}

// Pause lets nothing of a tenant ("" = the downstream) start for so many µs: negative = for ever, 0
// = go on. What runs goes on.
func (d *Downstream) Pause(tenant string, us int64) (until int64) {
	switch {
	case us < 0:
		until = Forever
	case us > 0:
		until = d.Now + us
	}
	stands, name := &d.Until, "-"
	if tenant != "" {
		stands, name = &d.Tenant(tenant).Until, tenant
	}
	was := *stands > d.Now
	*stands = until
	if tenant != "" {
		d.file(d.Tenant(tenant))
	}
	switch {
	case until > 0 && !was:
		d.log("p", name, until)
	case until == 0 && was:
		d.log("r", name)
	}
	return until
}
