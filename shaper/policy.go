package shaper

import (
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/policing"
)

// OnFull says what happens to a new job when its bucket has no room.
type OnFull string

const (
	// Reject refuses the new job and tells when to try again.
	Reject OnFull = "reject"
	// DropOldest ends the job that has waited longest, as StateDropped, and accepts the new one.
	// Only jobs that were never started are dropped.
	DropOldest OnFull = "drop-oldest"
	// Block lets Client.Enqueue wait for room until its context's deadline.
	Block OnFull = "block"
)

// Policy is how one tenant of a downstream is shaped. A zero field is not set: the
// downstream's defaults apply, and behind them DefaultPolicy.
//
// Every field is read at each enqueue, release and start, so a change reaches the backlog at once.
type Policy struct {
	Rate         buckets.Rate  // departures: one each 1/Rate, never a burst
	Depth        int           // how many jobs may wait, 1 … 10 000 000
	Weight       int           // share of what is shared with other tenants, 1 … 1000
	OnFull       OnFull        // what happens to a new job when Depth jobs wait
	MaxInFlight  int           // tickets out and jobs running, 1 … 1 000 000
	MaxAttempts  int           // starts that may fail before a job is dead, 1 … 1000
	MaxThrottles int           // starts that may be throttled, or fail without being charged, before a job is dead. 1 … 1 000 000
	Backoff      Backoff       // wait before a failed job comes back
	Timeout      time.Duration // a handler's time; its context ends then. 1ms … 30d
	MaxWait      time.Duration // a job that waited longer expires unstarted; negative = for ever
	Retention    time.Duration // how long an ended job's id and result are known. 1m … 90d
}

// Backoff is exponential with full jitter above Min: attempt n waits between Min and
// min(Max, Min·2ⁿ⁻¹).
type Backoff struct{ Min, Max time.Duration }

// IsZero reports whether no backoff was given.
func (b Backoff) IsZero() bool { return b == Backoff{} }

// String formats the backoff as a config file has it: "1s..5m".
func (b Backoff) String() string { return fmt.Sprintf("%v..%v", b.Min, b.Max) }

// DefaultPolicy is what applies where neither the tenant nor the downstream's defaults say otherwise.
func DefaultPolicy() Policy {
	return Policy{
		Rate: buckets.PerSecond(10), Depth: 1000, Weight: 1, OnFull: Reject,
		MaxInFlight: 1000, MaxAttempts: 5, MaxThrottles: 100, Backoff: Backoff{time.Second, 5 * time.Minute},
		Timeout: 10 * time.Minute, MaxWait: -1, Retention: time.Hour,
	}
}

// UnknownTenants says what an enqueue for a tenant without a policy of its own does.
type UnknownTenants string

const (
	// UseDefaults serves any tenant with the downstream's defaults.
	UseDefaults UnknownTenants = "defaults"
	// RefuseUnknown refuses jobs of tenants that were never set.
	RefuseUnknown UnknownTenants = "refuse"
)

// DownstreamPolicy is how one downstream is protected as a whole. A zero field is the documented default.
type DownstreamPolicy struct {
	Rate           buckets.Rate   // all tenants together; zero = no limit of its own
	MaxInFlight    int            // tickets out and jobs running; 0 = as many as the workers have places
	UnknownTenants UnknownTenants // default UseDefaults
	Tolerance      time.Duration  // τ: how long after its slot a start may happen; default 20ms
	Lead           time.Duration  // how long before its likely slot a ticket is released; default 20ms
	Lease          time.Duration  // how long a silent worker keeps a job; default 15s, at least 1s
	MaxCrashes     int            // lost leases of one job before it is dead, default 3
	DepartureLog   int            // about how many entries of the departure log to keep, 1 … 1 000 000, see Admin.DepartureLog; 0 = none
	Defaults       Policy         // for every tenant's unset fields

	// Admit are checks that a job passes before it may enter a bucket: all of them, or nothing is taken from any. They are kept in
	// the queue's own Redis, so their failure policies do not matter, and cannot be global. Nil leaves what is set to SetDownstream.
	Admit []policing.Rule
}

// Defaults of a DownstreamPolicy.
const (
	DefaultTolerance  = 20 * time.Millisecond
	DefaultLead       = 20 * time.Millisecond
	DefaultLease      = 15 * time.Second
	DefaultMaxCrashes = 3
)

// Validate returns a *FieldError for the first field of p that is set and cannot be used.
func (p Policy) Validate() error {
	if !p.Rate.IsZero() {
		if err := p.Rate.Validate(); err != nil {
			return fmt.Errorf("rate: %w: %w", ErrInvalid, err)
		}
	}
	for _, f := range []struct {
		name     string
		value    int
		min, max int
	}{
		{"depth", p.Depth, 1, 10_000_000},
		{"weight", p.Weight, 1, 1000},
		{"max_in_flight", p.MaxInFlight, 1, 1_000_000},
		{"max_attempts", p.MaxAttempts, 1, 1000},
		{"max_throttles", p.MaxThrottles, 1, 1_000_000},
	} {
		if f.value != 0 && (f.value < f.min || f.value > f.max) {
			return &FieldError{f.name, fmt.Sprint(f.value), fmt.Sprintf("%d to %d", f.min, f.max)}
		}
	}
	switch p.OnFull {
	case "", Reject, DropOldest, Block:
	default:
		return &FieldError{"on_full", string(p.OnFull), "reject, drop-oldest or block"}
	}
	if b := p.Backoff; !b.IsZero() && (b.Min < time.Millisecond || b.Max < b.Min || b.Max > 30*day) {
		return &FieldError{"backoff", b.String(), "MIN..MAX with 1ms ≤ MIN ≤ MAX ≤ 30d"}
	}
	if p.MaxWait > 0 && (p.MaxWait < time.Millisecond || p.MaxWait > 366*day) {
		return &FieldError{"max_wait", p.MaxWait.String(), "1ms to 366d"}
	}
	return firstErr(
		within("timeout", p.Timeout, time.Millisecond, 30*day),
		within("retention", p.Retention, time.Minute, 90*day),
	)
}

// Validate returns a *FieldError for the first field of p that is set and cannot be used.
func (p DownstreamPolicy) Validate() error {
	if !p.Rate.IsZero() {
		if err := p.Rate.Validate(); err != nil {
			return fmt.Errorf("rate: %w: %w", ErrInvalid, err)
		}
	}
	if p.MaxInFlight < 0 || p.MaxInFlight > 1_000_000 {
		return &FieldError{"max_in_flight", fmt.Sprint(p.MaxInFlight), "1 to 1000000, or 0 for as many as the workers have places"}
	}
	if p.MaxCrashes < 0 || p.MaxCrashes > 1000 {
		return &FieldError{"max_crashes", fmt.Sprint(p.MaxCrashes), "1 to 1000"}
	}
	if p.DepartureLog < 0 || p.DepartureLog > 1_000_000 {
		return &FieldError{"departure_log", fmt.Sprint(p.DepartureLog), "1 to 1000000"}
	}
	switch p.UnknownTenants {
	case "", UseDefaults, RefuseUnknown:
	default:
		return &FieldError{"unknown_tenants", string(p.UnknownTenants), "defaults or refuse"}
	}
	if err := firstErr(
		within("tolerance", p.Tolerance, time.Millisecond, 10*time.Second),
		within("lead", p.Lead, time.Millisecond, 10*time.Second),
		within("lease", p.Lease, time.Second, time.Hour),
	); err != nil {
		return err
	}
	if err := p.Defaults.Validate(); err != nil {
		return fmt.Errorf("defaults: %w", err)
	}
	_, err := newAdmitted(p.Admit)
	return err
}

const day = 24 * time.Hour

// within checks a duration that is set.
func within(field string, d, lo, hi time.Duration) error {
	if d != 0 && (d < lo || d > hi) {
		return &FieldError{field, d.String(), fmt.Sprintf("%v to %v", lo, hi)}
	}
	return nil
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
