package buckets

import (
	"errors"
	"fmt"
	"time"
)

// ErrParameter is wrapped by every error about an unusable parameter.
var ErrParameter = errors.New("invalid parameter")

// LeakyQueue is the leaky bucket as a queue: jobs pour in at any pace and leave one per interval.
// Depth counts the places: a job that would find Depth or more ahead of it is refused. A job that
// leaves at once takes a place until its interval is over.
//
// It decides and promises; it holds no jobs. Its state is one Timeline, which the caller keeps.
// Rate, Depth and Grace may differ from call to call.
type LeakyQueue struct {
	Depth int64
	Rate  Rate
	Grace time.Duration // see Terms; at most 24h, 0 is the textbook's queue
}

// QueueDecision is the answer to one offered job.
type QueueDecision struct {
	Allowed    bool
	LeavesIn   time.Duration // until the job leaves, rounded up to the µs; 0 when refused, or at once
	RetryAfter time.Duration // the least wait after which it would be accepted; 0 when accepted
}

// maxGrace bounds Grace: with more, over a day of idle time could be made up for.
const maxGrace = 24 * time.Hour

// Validate returns nil when the queue can be computed exactly; otherwise an error that
// wraps ErrParameter or ErrRate, and says what would be right.
func (q LeakyQueue) Validate() error {
	if err := q.Rate.Validate(); err != nil {
		return err
	}
	if q.Depth < 1 {
		return fmt.Errorf("%w: depth %d: want at least 1", ErrParameter, q.Depth)
	}
	if q.Grace < 0 || q.Grace > maxGrace || q.Grace%time.Microsecond != 0 {
		return fmt.Errorf("%w: grace %v: want whole microseconds, 0 to %v", ErrParameter, q.Grace, maxGrace)
	}
	if _, ok := q.Rate.span(q.Depth); !ok {
		return fmt.Errorf("%w: depth %d at %v takes longer than %v to leave: want a smaller depth or a faster rate",
			ErrParameter, q.Depth, q.Rate, MaxSpan)
	}
	return nil
}

// Offer decides about one job at the instant now (µs since the epoch) and returns the next state. A
// refusal changes nothing, except that it notes a clock that has stepped back: otherwise the wait
// would never end. The queue must be valid.
func (q LeakyQueue) Offer(t Timeline, now int64) (Timeline, QueueDecision) {
	now = clampInstant(now)
	terms := Terms{Grace: q.Grace}
	at := t.at(q.Rate, now, terms).earliest(now, terms)
	wait := at.since(now, q.Rate)
	most, _ := q.Rate.span(q.Depth - 1)
	if most.less(wait) {
		if now < t.Seen {
			t = t.at(q.Rate, now, terms)
		}
		return t, QueueDecision{RetryAfter: micros(wait.sub(most, q.Rate.Events).ceil())}
	}
	return t.Grant(q.Rate, at.ceil(), now, terms), QueueDecision{Allowed: true, LeavesIn: micros(wait.ceil())}
}

// Level returns how many departures are still to come at now, counting one that left
// less than an interval ago: how many of Depth's places are taken.
func (q LeakyQueue) Level(t Timeline, now int64) int64 {
	now = clampInstant(now)
	terms := Terms{Grace: q.Grace}
	at := t.at(q.Rate, now, terms).earliest(now, terms)
	wait := at.since(now, q.Rate)
	n := wait.count(q.Rate.Events, q.Rate.periodMicros())
	if whole, ok := q.Rate.span(n); ok && whole.less(wait) {
		n++ // a place is free again only when its interval is over
	}
	return n
}

// since returns how far a lies ahead of now; zero if it has passed.
func (a span) since(now int64, r Rate) span {
	if d := a.sub(span{us: now}, r.Events); d.us >= 0 {
		return d
	}
	return span{}
}
