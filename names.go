package jobshaper

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// What most programs need. The names are those of the packages below, whose documentation has the
// rest: shaper (policies, jobs, Admin), workers (what a handler may ask and answer), and buckets
// (rates).
type (
	DownstreamPolicy = shaper.DownstreamPolicy
	Policy           = shaper.Policy
	Backoff          = shaper.Backoff
	Rate             = buckets.Rate
	ClientConfig     = shaper.ClientConfig
	Admin            = shaper.Admin

	Spec    = shaper.Spec
	Result  = shaper.Result
	Offered = shaper.Offered
	Job     = shaper.Job
	State   = shaper.State

	Info           = workers.Info
	ThrottledError = workers.ThrottledError

	FieldError = shaper.FieldError
)

// See package shaper.
const (
	Accepted = shaper.Accepted
	Refused  = shaper.Refused

	RefusedFull     = shaper.RefusedFull
	RefusedUnknown  = shaper.RefusedUnknown
	RefusedConflict = shaper.RefusedConflict
	RefusedDead     = shaper.RefusedDead
	RefusedLimited  = shaper.RefusedLimited
	RefusedMemory   = shaper.RefusedMemory
	RefusedParked   = shaper.RefusedParked

	StateWaiting   = shaper.StateWaiting
	StateDelayed   = shaper.StateDelayed
	StateRunning   = shaper.StateRunning
	StateDone      = shaper.StateDone
	StateDead      = shaper.StateDead
	StateExpired   = shaper.StateExpired
	StateCancelled = shaper.StateCancelled
	StateDropped   = shaper.StateDropped

	Reject        = shaper.Reject
	DropOldest    = shaper.DropOldest
	Block         = shaper.Block
	RefuseUnknown = shaper.RefuseUnknown
)

// Errors to branch on. The last three are the causes for which a handler's context ends.
var (
	ErrInvalid   = shaper.ErrInvalid
	ErrNotFound  = shaper.ErrNotFound
	ErrStore     = shaper.ErrStore
	ErrLeaseLost = shaper.ErrLeaseLost
	ErrCancelled = shaper.ErrCancelled
	ErrStopping  = shaper.ErrStopping
)

// PerSecond is the rate of n jobs a second.
func PerSecond(n int64) Rate { return buckets.PerSecond(n) }

// ParseRate reads an exact rate: "10/s", "600/m", "1/90s", "1000/d".
func ParseRate(s string) (Rate, error) { return buckets.ParseRate(s) }

// MaxWait is an option of Enqueue: the job expires unstarted once it has waited longer than d.
func MaxWait(d time.Duration) asynq.Option { return shaper.MaxWait(d) }

// JobFrom returns what a handler may know about the job that it runs.
func JobFrom(ctx context.Context) (Info, bool) { return workers.JobFrom(ctx) }

// SetResult keeps b as the result of the job that the handler of ctx runs, see Job.Result.
func SetResult(ctx context.Context, b []byte) { workers.SetResult(ctx, b) }

// Throttled is what a handler returns when the downstream asked to slow down: no job of the job's
// tenant starts until after has passed, and the job goes back to the front and is not charged for
// this attempt. err may be nil. For every tenant of the downstream return a *ThrottledError.
func Throttled(after time.Duration, err error) error { return workers.Throttled(after, err) }
