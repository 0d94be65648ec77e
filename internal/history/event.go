package history

import (
	"cmp"
	"slices"
	"time"
)

// Kind says what happened.
type Kind string

const (
	Offer  Kind = "offer"  // a producer is about to offer a job
	Accept Kind = "accept" // it was told that the job is accepted
	Refuse Kind = "refuse" // it was told that the job is refused
	Start  Kind = "start"  // a handler began, or a downstream saw the request
	End    Kind = "end"    // a handler is about to return, or a job was seen to have ended; see Outcome
	Cut    Kind = "cut"    // the process PID is dead now, or cut off for longer than its leases last
	Go     Kind = "go"     // the process PID, which was only stopped, is about to go on
	Set    Kind = "set"    // Tenant's rate is about to be set, or was set just now; see Outcome, and Spans
	Down   Kind = "down"   // Redis is about to go away
	Up     Kind = "up"     // it is back
	Fault  Kind = "fault"  // something was broken on purpose; see Outcome
)

// Outcomes of an End.
const (
	Done      = "done"
	Failed    = "failed" // this attempt
	Throttled = "throttled"
	Back      = "back" // handed back unfinished
	Dead      = "dead"
	Expired   = "expired"
	Cancelled = "cancelled"
	Dropped   = "dropped"
)

// Final reports whether a job with this outcome need not start again.
func Final(outcome string) bool {
	return slices.Contains([]string{Done, Dead, Expired, Cancelled, Dropped}, outcome)
}

// Event is one line of a history. Fields that do not apply are zero.
type Event struct {
	Kind    Kind   `json:"kind"`
	At      int64  `json:"at"`   // ns of the host's monotonic clock
	Wall    int64  `json:"wall"` // the same instant in µs since the epoch, to compare with slots
	PID     int    `json:"pid"`  // the process it happened in; of a Cut, the process that was cut
	Tenant  string `json:"tenant,omitempty"`
	ID      string `json:"id,omitempty"`
	Attempt int    `json:"attempt,omitempty"` // of a Start or End
	Slot    int64  `json:"slot,omitempty"`    // of a Start: µs since the epoch
	// Outcome is what became of an End, the reason of a Refuse, the rate of a Set, or the name of a
	// Fault.
	Outcome string `json:"outcome,omitempty"`

	// Under is the rule in effect at a Start, if it is not the one that a check is given. Not
	// recorded.
	Under *Rule `json:"-"`
}

// job names a job within a history.
type job struct{ tenant, id string }

func (e Event) job() job { return job{e.Tenant, e.ID} }

// History is a list of events, in the order of their clocks.
type History []Event

// Of returns the events of one kind.
func (h History) Of(kind Kind) History {
	return h.where(func(e Event) bool { return e.Kind == kind })
}

// Tenant returns the events of one tenant's jobs.
func (h History) Tenant(name string) History {
	return h.where(func(e Event) bool { return e.Tenant == name })
}

// Since returns the events at or after an instant, see Now.
func (h History) Since(at int64) History {
	return h.where(func(e Event) bool { return e.At >= at })
}

// Until returns the events before an instant.
func (h History) Until(at int64) History {
	return h.where(func(e Event) bool { return e.At < at })
}

func (h History) where(keep func(Event) bool) History {
	var out History
	for _, e := range h {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

func (h History) sort() {
	slices.SortStableFunc(h, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// byTenant returns the starts of each tenant, in order.
func (h History) byTenant() map[string]History {
	out := map[string]History{}
	for _, e := range h.Of(Start) {
		out[e.Tenant] = append(out[e.Tenant], e)
	}
	return out
}

// byJob returns the events of each job, in order.
func (h History) byJob() map[job]History {
	out := map[job]History{}
	for _, e := range h {
		if e.ID != "" {
			out[e.job()] = append(out[e.job()], e)
		}
	}
	return out
}

// gap is the time from a to b.
func gap(a, b Event) time.Duration { return time.Duration(b.At - a.At) }
