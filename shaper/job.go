package shaper

import (
	"time"

	"github.com/jobshaper/jobshaper/policing"
)

// State is where a job is in its life.
type State string

const (
	StateWaiting   State = "waiting"   // in its bucket
	StateDelayed   State = "delayed"   // not due yet: enqueued with a delay, or waiting out a backoff
	StateOut       State = "out"       // its ticket was released
	StateRunning   State = "running"   // it owns a slot
	StateDead      State = "dead"      // it used up its attempts; kept until requeued, removed or too old
	StateDone      State = "done"      // its handler succeeded
	StateExpired   State = "expired"   // it waited longer than max_wait and was never started
	StateCancelled State = "cancelled" // somebody cancelled it
	StateDropped   State = "dropped"   // drop-oldest ended it to make room
	StateRemoved   State = "removed"   // it was dead, and somebody removed it
)

// Ended reports whether a job in this state will not start again by itself.
func (s State) Ended() bool {
	switch s {
	case StateDead, StateDone, StateExpired, StateCancelled, StateDropped, StateRemoved:
		return true
	}
	return false
}

// Why a job is dead.
const (
	ReasonFailed  = "failed"  // its last allowed attempt failed, or max_throttles starts failed without being charged
	ReasonRefused = "refused" // the handler or downstream said that no attempt can succeed
	ReasonCrashed = "crashed" // its worker vanished too often, and no other job was to blame

	ReasonUnreadable = "unreadable" // its state was not what any version writes; Error has what was found. It may have run

	ReasonThrottled = "throttled" // the downstream asked to slow down after each of its last max_throttles starts
)

// Job is what is known of one job. Times are by Redis' clock.
type Job struct {
	ID         string
	Tenant     string
	Downstream string
	Type       string
	Payload    []byte            // nil once ended, except for dead jobs
	Headers    map[string]string // as asynq's task headers
	State      State
	Attempt    int       // starts so far, including one that is granted and waits for its slot; strictly increasing
	Charged    int       // starts that count against max_attempts
	Crashes    int       // starts whose worker vanished
	Blamed     int       // how many of those count against max_crashes; not known once ended, except for dead jobs
	Suspect    bool      // its worker vanished, and no start of it ended since: it runs apart from others of which that is true
	Throttles  int       // starts that max_throttles bounds: throttled, or failed without being charged; not known once ended, except for dead jobs
	Accepted   time.Time // when it was accepted, or became due if it was delayed
	Due        time.Time // for StateDelayed
	Slot       time.Time // the slot of its last start
	EndedAt    time.Time
	Position   int    // for StateWaiting: 1 leaves next
	Reason     string // for StateDead: one of the Reason constants
	Error      string // of its last failed attempt; once it has ended, except dead, only where Spec.Retention was set
	Result     []byte // for StateDone, where Spec.Retention was set: what the handler wrote
}

// Status is the answer to an offered job.
type Status string

const (
	Accepted Status = "accepted"
	Refused  Status = "refused"
)

// Why a job was refused.
const (
	RefusedFull     = "full"           // its bucket has no room
	RefusedUnknown  = "unknown_tenant" // the downstream serves only tenants that were set
	RefusedConflict = "conflict"       // the id is known with another body
	RefusedDead     = "dead"           // the job is known, and dead: requeue or remove it
	RefusedLimited  = "limited"        // an admission rule refuses it, see Result.Admission
	RefusedMemory   = "store_full"     // Redis has no memory for it
	RefusedParked   = "parked"         // its tenant is parked, see TenantInfo.Parked
)

// Why it cannot be said when a waiting job will start.
const (
	NoteParked    = "parked"     // its tenant is parked, see TenantInfo.Parked
	NotePaused    = "paused"     // its tenant or the downstream is paused, without an end
	NoteNoWorkers = "no_workers" // no live pool of workers serves the downstream
	NoteInFlight  = "in_flight"  // all that may be in flight is, so it depends on how long other jobs run
)

// Result is the answer to one offered job. A refusal is a Result, not an error; it left no trace.
type Result struct {
	ID         string
	Tenant     string
	Downstream string
	Status     Status
	Reason     string        // why it was refused
	State      State         // of the job that is known under the ID; empty if there is none. While its ticket is out a job counts as waiting
	Duplicate  bool          // accepted before: same id, same body; it has not ended, or is done
	Position   int           // how many waiting jobs leave before it, plus one; 1 leaves next. 0 if it does not wait
	ETA        time.Time     // expected start, by Redis' clock; of a running job its slot; zero where it cannot be said
	Note       string        // why it cannot: one of the Note constants
	RetryAfter time.Duration // for Refused: the shortest wait after which trying again makes sense; negative = never

	// Admission is what the downstream's admission rules said; nil if it has none, or they were not
	// asked.
	Admission *policing.Verdict
}

// Spec is one job to offer.
type Spec struct {
	Tenant      string // default DefaultName
	ID          string // default: a new random one
	Type        string
	Payload     []byte
	Headers     map[string]string
	Delay       time.Duration // not before this long from now
	At          time.Time     // not before this instant; not with Delay
	Timeout     time.Duration // zero = the tenant's
	MaxAttempts int           // zero = the tenant's
	MaxWait     time.Duration // zero = the tenant's
	Retention   time.Duration // how long its id is known after its end, and its result kept; zero = the tenant's, and no result
}
