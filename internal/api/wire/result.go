package wire

import (
	"time"

	"github.com/jobshaper/jobshaper/shaper"
)

// Result is a shaper.Result in JSON. Fields that may be left out have omitempty.
type Result struct {
	ID           string  `json:"id"`
	Tenant       string  `json:"tenant"`
	Downstream   string  `json:"downstream"`
	Status       string  `json:"status"` // accepted or refused
	Reason       string  `json:"reason"` // why it was refused
	State        string  `json:"state"`  // of the job under this id: waiting, delayed, running, done, dead …; empty = there is none
	Duplicate    bool    `json:"duplicate"`
	Position     int     `json:"position"`       // 1 leaves next; 0 = does not wait
	ETA          *string `json:"eta"`            // expected start, RFC 3339 with µs; null where there is none
	Note         string  `json:"note,omitempty"` // why eta is null: paused, no_workers or in_flight
	RetryAfterMS int64   `json:"retry_after_ms"` // for refused: the least wait that makes sense; -1 = never
	Rule         string  `json:"rule,omitempty"` // for the reason limited: the admission rule that refused
	Error        string  `json:"error,omitempty"`
}

// ReasonInvalid is the reason for a job that cannot be offered as it is; Result.Error says more.
const ReasonInvalid = "invalid"

// NewResult returns r in JSON.
func NewResult(r shaper.Result) Result {
	rule := ""
	if r.Admission != nil {
		rule = r.Admission.Refused
	}
	return Result{
		ID: r.ID, Tenant: r.Tenant, Downstream: r.Downstream, Status: string(r.Status), Reason: r.Reason,
		State: string(r.State), Note: r.Note, Duplicate: r.Duplicate, Position: r.Position, ETA: timestamp(r.ETA), RetryAfterMS: ceilMillis(r.RetryAfter), Rule: rule,
	}
}

// Invalid returns the answer to a job that cannot be offered.
func Invalid(s shaper.Spec, downstream string, err error) Result {
	return Result{ID: s.ID, Tenant: s.Tenant, Downstream: downstream, Status: string(shaper.Refused),
		Reason: ReasonInvalid, RetryAfterMS: -1, Error: err.Error()}
}

// timestamp formats a time as RFC 3339 with µs; nil for none.
func timestamp(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	return &s
}

// ceilMillis rounds up, so that a caller who waits that long does not come too early.
func ceilMillis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
