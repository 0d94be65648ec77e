package history

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// Rule is what was promised about the starts of a tenant.
type Rule struct {
	Rate      buckets.Rate
	Tolerance time.Duration // τ: how long after its slot a start may happen
	Keep      time.Duration // how much nearer than an interval slots may be, since one that was put off kept its place

	// Slack is how much later than the start itself a recorder may have read its clock: zero in the
	// handler, a few ms for an HTTP downstream, which first has to accept and parse a request.
	Slack time.Duration
}

// span is the time from a slot to the n-th after it, cut to whole ns.
func (r Rule) span(n int) time.Duration {
	hi, lo := bits.Mul64(uint64(n), uint64(r.Rate.Period))
	q, _ := bits.Div64(hi, lo, uint64(r.Rate.Events))
	return time.Duration(q)
}

// most is how many starts may be in a window: 1 + ⌊(window + τ + slack + keep) / interval⌋.
func (r Rule) most(window time.Duration) int {
	hi, lo := bits.Mul64(uint64(window+r.Tolerance+r.Slack+r.Keep), uint64(r.Rate.Events))
	q, _ := bits.Div64(hi, lo, uint64(r.Rate.Period))
	return 1 + int(q)
}

// of is the rule that a start came under: its own, or r.
func (r Rule) of(e Event) Rule {
	if e.Under == nil {
		return r
	}
	own := *e.Under
	own.Slack = r.Slack
	return own
}

// laxer is the rule where either of two may be in force: the shorter interval, the larger tolerance
// and the larger keep.
func laxer(a, b Rule) Rule {
	if b.span(1) < a.span(1) {
		a.Rate = b.Rate
	}
	a.Tolerance, a.Keep = max(a.Tolerance, b.Tolerance), max(a.Keep, b.Keep)
	return a
}

// Violation is one promise that was not kept.
type Violation struct {
	Check  string // the name of the check that found it
	Tenant string
	ID     string // the job, if it is about one
	At     int64  // when, by the history's clock
	What   string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: tenant %q job %q at %.6fs: %s", v.Check, v.Tenant, v.ID, time.Duration(v.At).Seconds(), v.What)
}

// found returns a violation by an event.
func found(check string, e Event, format string, args ...any) Violation {
	return Violation{Check: check, Tenant: e.Tenant, ID: e.ID, At: e.At, What: fmt.Sprintf(format, args...)}
}
