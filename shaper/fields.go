package shaper

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// How policies stand in Redis: fields of the downstream's and the tenants' hashes. lua/lib/tenant.lua reads them.

func rateField(r buckets.Rate) string {
	if r.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d/%d", r.Events, r.PeriodMicros())
}

func intField(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func millisField(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d < 0:
		return "-1"
	}
	return millis(d)
}

func microsField(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return micros(d)
}

// policyFields returns field, value, … of a tenant's policy; an empty value is a field that is not set.
func policyFields(p Policy) []string {
	return []string{
		"p:rate", rateField(p.Rate), "p:depth", intField(p.Depth), "p:weight", intField(p.Weight),
		"p:on_full", string(p.OnFull), "p:cap", intField(p.MaxInFlight), "p:attempts", intField(p.MaxAttempts),
		"p:throttles", intField(p.MaxThrottles),
		"p:bmin", millisField(p.Backoff.Min), "p:bmax", millisField(p.Backoff.Max),
		"p:timeout", millisField(p.Timeout), "p:wait", millisField(p.MaxWait), "p:keep", millisField(p.Retention),
	}
}

// downstreamFields returns field, value, … of a policy that is valid.
func downstreamFields(p DownstreamPolicy) []string {
	admit, err := newAdmitted(p.Admit)
	if err != nil {
		panic(err) // the caller has not validated it
	}
	return append([]string{
		"admit", admit.field,
		"rate", rateField(p.Rate), "cap", intField(p.MaxInFlight), "unknown", string(p.UnknownTenants),
		"tau", microsField(p.Tolerance), "lead", microsField(p.Lead), "lease", microsField(p.Lease),
		"crashes", intField(p.MaxCrashes), "log", intField(p.DepartureLog),
	}, policyFields(p.Defaults)...)
}

func readRate(s string) buckets.Rate {
	events, period, ok := strings.Cut(s, "/")
	if !ok {
		return buckets.Rate{}
	}
	return buckets.Rate{Events: atoi(events), Period: time.Duration(atoi(period)) * time.Microsecond}
}

func readMillis(s string) time.Duration { return time.Duration(atoi(s)) * time.Millisecond }
func readMicros(s string) time.Duration { return time.Duration(atoi(s)) * time.Microsecond }

func readPolicy(h map[string]string) Policy {
	p := Policy{
		Rate: readRate(h["p:rate"]), Depth: int(atoi(h["p:depth"])), Weight: int(atoi(h["p:weight"])),
		OnFull: OnFull(h["p:on_full"]), MaxInFlight: int(atoi(h["p:cap"])), MaxAttempts: int(atoi(h["p:attempts"])),
		MaxThrottles: int(atoi(h["p:throttles"])), Backoff: Backoff{readMillis(h["p:bmin"]), readMillis(h["p:bmax"])},
		Timeout: readMillis(h["p:timeout"]), MaxWait: readMillis(h["p:wait"]), Retention: readMillis(h["p:keep"]),
	}
	if h["p:wait"] == "-1" {
		p.MaxWait = -1
	}
	return p
}

func readDownstream(h map[string]string) DownstreamPolicy {
	return DownstreamPolicy{
		Rate: readRate(h["rate"]), MaxInFlight: int(atoi(h["cap"])), UnknownTenants: UnknownTenants(h["unknown"]),
		Tolerance: readMicros(h["tau"]), Lead: readMicros(h["lead"]), Lease: readMicros(h["lease"]),
		MaxCrashes: int(atoi(h["crashes"])), DepartureLog: int(atoi(h["log"])), Defaults: readPolicy(h), Admit: readRules(h["admit"]),
	}
}

// or returns p with every field that is not set taken from q.
func (p Policy) or(q Policy) Policy {
	if p.Rate.IsZero() {
		p.Rate = q.Rate
	}
	if p.Backoff.IsZero() {
		p.Backoff = q.Backoff
	}
	if p.OnFull == "" {
		p.OnFull = q.OnFull
	}
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&p.Depth, q.Depth)
	set(&p.Weight, q.Weight)
	set(&p.MaxInFlight, q.MaxInFlight)
	set(&p.MaxAttempts, q.MaxAttempts)
	set(&p.MaxThrottles, q.MaxThrottles)
	setD := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	setD(&p.Timeout, q.Timeout)
	setD(&p.MaxWait, q.MaxWait)
	setD(&p.Retention, q.Retention)
	return p
}

// WithDefaults returns p with every field that is not set filled in, as it applies.
func (p DownstreamPolicy) WithDefaults() DownstreamPolicy {
	if p.UnknownTenants == "" {
		p.UnknownTenants = UseDefaults
	}
	if p.Tolerance == 0 {
		p.Tolerance = DefaultTolerance
	}
	if p.Lead == 0 {
		p.Lead = DefaultLead
	}
	if p.Lease == 0 {
		p.Lease = DefaultLease
	}
	if p.MaxCrashes == 0 {
		p.MaxCrashes = DefaultMaxCrashes
	}
	p.Defaults = p.Defaults.or(DefaultPolicy())
	return p
}
