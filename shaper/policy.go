package shaper

import (
	"fmt"
	"math"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/policing"
)

// OnFull says what happens to a new job when its bucket has no room.
type OnFull string

const (
	// Reject refuses the new job and says when to try again.
	Reject OnFull = "reject"
	// DropOldest ends the job that has waited longest, as StateDropped, and accepts the new one.
	// Only jobs that were never started are dropped.
	DropOldest OnFull = "drop-oldest"
	// Block lets Client.Enqueue wait for room until its context's deadline.
	Block OnFull = "block"
)

// Policy is how one tenant of a downstream is shaped. A zero field is not set: the downstream's
// defaults apply, and where those are not set, DefaultPolicy.
//
// Every field is read at each enqueue, release and start, so a change reaches the backlog at once.
type Policy struct {
	Rate         buckets.Rate  // departures: one every 1/Rate, never a burst
	Depth        int           // how many jobs may wait, 1 … 10 000 000
	Weight       int           // share of what it shares with other tenants, relative to their weights. 1 … 1000
	OnFull       OnFull        // what happens to a new job when Depth jobs wait
	MaxInFlight  int           // tickets out and jobs running, 1 … 1 000 000
	MaxAttempts  int           // starts that may fail before a job is dead, 1 … 1000
	MaxThrottles int           // starts that may be throttled, or fail without being charged, before a job is dead. 1 … 1 000 000
	Backoff      Backoff       // wait before a failed job comes back
	Timeout      time.Duration // how long a handler may run; then its context ends. 1ms … 30d
	MaxWait      time.Duration // a job that waited longer expires unstarted; negative = for ever
	Retention    time.Duration // how long an ended job's id is known. 1m … 90d
	MaxEnds      int           // ended jobs whose ids are known, before the oldest are forgotten. 1 … 10 000 000
}

// Backoff is exponential with full jitter above Min: attempt n waits between Min and
// min(Max, Min·2ⁿ⁻¹).
type Backoff struct{ Min, Max time.Duration }

// IsZero reports whether no backoff was given.
func (b Backoff) IsZero() bool { return b == Backoff{} }

// String formats the backoff as a config file has it: "1s..5m".
func (b Backoff) String() string { return fmt.Sprintf("%v..%v", b.Min, b.Max) }

// DefaultPolicy is what applies where neither the tenant nor the downstream's defaults say
// otherwise.
func DefaultPolicy() (p Policy) {
	policyTable.SetDefaults(&p)
	return p
}

// policyTable says everything about each field; a row in it makes a field. Only what uses a field
// names it, or its key in a script.
var policyTable = setting.Register(setting.Table[Policy]{
	setting.Rate("rate", "p:rate", "departures, one every 1/rate, never a burst",
		func(p *Policy) *buckets.Rate { return &p.Rate }, buckets.PerSecond(10)),
	setting.Whole("depth", "p:depth", "how many jobs may wait",
		func(p *Policy) *int { return &p.Depth }, 1, 10_000_000, 1000),
	setting.Whole("weight", "p:weight", "share of what is shared with other tenants",
		func(p *Policy) *int { return &p.Weight }, 1, 1000, 1),
	setting.Word("on_full", "p:on_full", "what happens to a new job when there is no room",
		func(p *Policy) *OnFull { return &p.OnFull }, Reject, DropOldest, Block),
	setting.Whole("max_in_flight", "p:cap", "tickets out and jobs running at once",
		func(p *Policy) *int { return &p.MaxInFlight }, 1, 1_000_000, 1000),
	setting.Whole("max_attempts", "p:attempts", "starts that may fail before a job is dead",
		func(p *Policy) *int { return &p.MaxAttempts }, 1, 1000, 5),
	setting.Whole("max_throttles", "p:throttles", "starts that the downstream throttles before a job is dead",
		func(p *Policy) *int { return &p.MaxThrottles }, 1, 1_000_000, 100),
	setting.Backoff("backoff", "p:bmin p:bmax", "wait before a failed job comes back, doubling from MIN to MAX",
		func(p *Policy) *Backoff { return &p.Backoff }, time.Millisecond, time.Millisecond, 30*day, Backoff{time.Second, 5 * time.Minute}),
	setting.Duration("timeout", "p:timeout", "a job that runs longer is ended and counts as failed",
		func(p *Policy) *time.Duration { return &p.Timeout }, time.Millisecond, time.Millisecond, 30*day, 10*time.Minute),
	setting.DurationOrForever("max_wait", "p:wait", "a job that waited longer expires unstarted",
		func(p *Policy) *time.Duration { return &p.MaxWait }, time.Millisecond, time.Millisecond, 366*day, -1),
	setting.Duration("retention", "p:keep", "how long an ended job's id is known",
		func(p *Policy) *time.Duration { return &p.Retention }, time.Millisecond, time.Minute, 90*day, time.Hour),
	setting.Whole("max_ends", "p:ends", "ended jobs whose ids are known",
		func(p *Policy) *int { return &p.MaxEnds }, 1, 10_000_000, 100_000),
})

// UnknownTenants says what an enqueue for a tenant without a policy of its own does.
type UnknownTenants string

const (
	// UseDefaults serves any tenant with the downstream's defaults.
	UseDefaults UnknownTenants = "defaults"
	// RefuseUnknown refuses jobs of tenants that were never set.
	RefuseUnknown UnknownTenants = "refuse"
)

// Spacing says which starts are kept apart where tenants share a downstream's rate.
type Spacing string

const (
	// StrictSpacing keeps the starts of each tenant an interval apart, and those of all tenants an
	// interval of the downstream. Two such grids rarely fit, so a tenant that shares a busy
	// downstream may get less than its rate: its interval grows to whole intervals of the
	// downstream.
	StrictSpacing Spacing = "strict"
	// SharedSpacing keeps the starts of all tenants an interval of the downstream apart. A tenant
	// that the downstream puts off keeps its place on its own timeline, by up to one interval of
	// the downstream and of its own: its starts may be that much nearer than its interval, and any
	// window holds at most one more of them.
	SharedSpacing Spacing = "shared"
)

// DownstreamPolicy is how one downstream is protected as a whole. A zero field is the documented
// default.
type DownstreamPolicy struct {
	Rate           buckets.Rate   // all tenants together; zero = no limit of its own
	Spacing        Spacing        // where there is a Rate; default StrictSpacing
	MaxInFlight    int            // tickets out and jobs running; 0 = as many as the workers have places
	UnknownTenants UnknownTenants // default UseDefaults
	Tolerance      time.Duration  // τ: how long after its slot a start may happen; default 20ms
	Lead           time.Duration  // how long before its likely slot a ticket is released, with Redis next to it; default 20ms
	MaxLead        time.Duration  // the same at most, however far away Redis is; default 300ms, and never less than Lead
	Lease          time.Duration  // how long a silent worker keeps a job; default 15s, at least 1s
	MaxCrashes     int            // crashes that are blamed on one job before it is dead, default 3
	MaxEnds        int            // ended jobs of all tenants whose ids are known, see Policy.MaxEnds; default 1 000 000
	DepartureLog   int            // about how many entries of the departure log to keep, 1 … 1 000 000, see Admin.DepartureLog; 0 = none
	Defaults       Policy         // for every tenant's unset fields

	// Admit holds checks that a job must pass before it may enter a bucket: all of them, or nothing
	// is taken from any. They are kept in the queue's own Redis, so their failure policies do not
	// matter, and they cannot be global. Nil given to SetDownstream leaves them as they are.
	Admit []policing.Rule
}

// Defaults of a DownstreamPolicy.
const (
	DefaultTolerance  = 20 * time.Millisecond
	DefaultLead       = 20 * time.Millisecond
	DefaultMaxLead    = 300 * time.Millisecond
	DefaultLease      = 15 * time.Second
	DefaultMaxCrashes = 3
	DefaultMaxEnds    = 1_000_000
)

// downstreamTable does the same for the fields of a downstream itself, except Admit.
var downstreamTable = setting.Register(setting.Table[DownstreamPolicy]{
	setting.Rate("rate", "rate", "departures of all tenants together",
		func(p *DownstreamPolicy) *buckets.Rate { return &p.Rate }, buckets.Rate{}),
	setting.Word("spacing", "spacing", "whether a tenant that shares this rate keeps its own interval strictly",
		func(p *DownstreamPolicy) *Spacing { return &p.Spacing }, StrictSpacing, SharedSpacing),
	setting.WholeOrZero("max_in_flight", "cap", "tickets out and jobs running at once, of all tenants",
		func(p *DownstreamPolicy) *int { return &p.MaxInFlight }, 1_000_000, ", or 0 for as many as the workers have places"),
	setting.Word("unknown_tenants", "unknown", "what applies to tenants that nobody named",
		func(p *DownstreamPolicy) *UnknownTenants { return &p.UnknownTenants }, UseDefaults, RefuseUnknown),
	setting.Duration("tolerance", "tau", "how long after its slot a start may still happen",
		func(p *DownstreamPolicy) *time.Duration { return &p.Tolerance }, time.Microsecond, time.Millisecond, 10*time.Second, DefaultTolerance),
	setting.Duration("lead", "lead", "how long before its slot a job is handed to a worker",
		func(p *DownstreamPolicy) *time.Duration { return &p.Lead }, time.Microsecond, time.Millisecond, 10*time.Second, DefaultLead),
	setting.Duration("max_lead", "max_lead", "the same where Redis is far away: the lead grows with the round trip up to this",
		func(p *DownstreamPolicy) *time.Duration { return &p.MaxLead }, time.Microsecond, time.Millisecond, 10*time.Second, DefaultMaxLead),
	setting.Duration("lease", "lease", "how long a silent worker keeps its job",
		func(p *DownstreamPolicy) *time.Duration { return &p.Lease }, time.Microsecond, time.Second, time.Hour, DefaultLease),
	setting.Whole("max_crashes", "crashes", "a job that took its worker down this often, and alone is to blame, is dead",
		func(p *DownstreamPolicy) *int { return &p.MaxCrashes }, 1, 1000, DefaultMaxCrashes),
	setting.Whole("max_ends", "max_ends", "ended jobs whose ids are known, of all tenants",
		func(p *DownstreamPolicy) *int { return &p.MaxEnds }, 1, 100_000_000, DefaultMaxEnds),
	setting.Whole("departure_log", "log", "about how many entries to keep, two a start, for shaper verify",
		func(p *DownstreamPolicy) *int { return &p.DepartureLog }, 1, 1_000_000, 0),
})

// Share is the most of its rate that a tenant can get while other tenants leave no slot of the
// downstream unused; 1 is all of it. With StrictSpacing the tenant's starts are then whole
// intervals of the downstream apart.
func (p DownstreamPolicy) Share(tenant buckets.Rate) float64 {
	if p.Rate.IsZero() {
		return 1
	}
	intervals := float64(tenant.Period) * float64(p.Rate.Events) / (float64(tenant.Events) * float64(p.Rate.Period))
	if p.Spacing == SharedSpacing || intervals < 1 {
		return min(intervals, 1)
	}
	return intervals / math.Ceil(intervals)
}

// Validate returns a *FieldError for the first field of p that is set and cannot be used.
func (p Policy) Validate() error { return validate(policyTable.Of(&p)) }

// Validate returns a *FieldError for the first field of p that is set and cannot be used.
func (p DownstreamPolicy) Validate() error {
	if err := validate(downstreamTable.Of(&p)); err != nil {
		return err
	}
	if err := p.Defaults.Validate(); err != nil {
		return fmt.Errorf("defaults: %w", err)
	}
	_, err := newAdmitted(p.Admit)
	return err
}

func validate(fields []setting.Value) error {
	for _, v := range fields {
		want := v.Check()
		if want == "" {
			continue
		}
		if r, ok := v.Pointer().(*buckets.Rate); ok {
			return fmt.Errorf("%s: %w: %w", v.Name, ErrInvalid, r.Validate())
		}
		return &FieldError{v.Name, v.Text(), want}
	}
	return nil
}

const day = 24 * time.Hour
