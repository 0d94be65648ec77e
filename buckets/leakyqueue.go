package buckets

import (
	"errors"
	"fmt"
	"time"
)

// ErrParameter is wrapped by every error about parameters that no algorithm can keep exactly.
var ErrParameter = errors.New("invalid parameter")

// Timeline is the sequence of departures of a leaky bucket used as a queue: exact
// instants, at least one interval (Period/Events of the rate) apart. The first grant
// leaves at once; idle time earns nothing, so a pause is never followed by a burst.
//
// It is the "virtual scheduling" form of the generic cell rate algorithm (ITU-T I.371)
// with no tolerance. Last is kept with its remainder in 1/Events µs, so the slots of
// 7/s are k × 1/7 s, and the 700th after the first is exactly 100 s after it.
//
// The zero value has granted nothing. A Timeline is a plain value and holds no rate:
// give the rate with each call, and the next slot follows a changed one. Then the
// next slot is one new interval after the last slot granted.
//
// Clocks: instants are µs since the epoch. A clock that steps forward looks like idle
// time: the next may leave at once, and no more than that one. After a step back of up
// to an interval the next waits that much longer. A longer step back moves the timeline
// back with it: the wait that the last grant was given counts again from now, as nobody
// can tell how much of it has passed, and no more than that is lost. Slots before and
// after it are still an interval apart in elapsed time.
type Timeline struct {
	Last   int64 // the last slot granted, whole µs
	Frac   int64 // and this many 1/Events µs
	Events int64 // what Frac counts in; 0 when nothing was granted yet
	Seen   int64 // the instant at which it was granted, to notice a clock that steps back
}

// Earliest returns the first slot that Grant would give, rounded up to the µs, and is
// never before now. It changes nothing.
func (t Timeline) Earliest(r Rate, now int64) int64 {
	now = clampInstant(now)
	return t.rebase(r, now).next(r, now).ceil()
}

// Grant takes the earliest slot at or after now. It returns the slot, rounded up to the
// µs, and the timeline in which that slot is taken. The rate must be valid.
func (t Timeline) Grant(r Rate, now int64) (slot int64, _ Timeline) {
	now = clampInstant(now)
	s := t.rebase(r, now).next(r, now)
	return s.ceil(), Timeline{Last: s.us, Frac: s.frac, Events: r.Events, Seen: now}
}

// next returns the exact next slot: one interval after the last one, or now.
func (t Timeline) next(r Rate, now int64) span {
	at := span{us: now}
	if t.Events == 0 {
		return at
	}
	last := span{t.Last, t.Frac}
	if t.Events != r.Events {
		last = span{us: last.ceil()} // another denominator: never early, at most 1 µs late, once
	}
	interval, _ := r.span(1) // no interval of a valid rate exceeds MaxSpan
	if n := last.add(interval, r.Events); at.less(n) {
		return n
	}
	return at
}

// rebase moves the timeline back with a clock that stepped back by more than an
// interval. What was promised at Seen is as far ahead of now as it was of Seen.
func (t Timeline) rebase(r Rate, now int64) Timeline {
	interval, _ := r.span(1)
	if back := t.Seen - now; t.Events != 0 && back > interval.us {
		t.Last -= back
		t.Seen = now
	}
	return t
}

// LeakyQueue is the leaky bucket as a queue: jobs pour in at any pace and leave one
// each interval. Depth counts the places: a job that would find Depth or more before
// it is refused. The job that leaves at once takes a place until the interval is over.
//
// It decides and promises; it holds no jobs. Its state is one Timeline, which the
// caller keeps. Rate and Depth may differ from call to call.
type LeakyQueue struct {
	Depth int64
	Rate  Rate
}

// QueueDecision is the answer to one offered job.
type QueueDecision struct {
	Allowed    bool
	Wait       time.Duration // until the job leaves, rounded up to the µs; 0 when refused
	RetryAfter time.Duration // the least wait after which it would be accepted; 0 when accepted
}

// Validate returns nil when the queue can be computed exactly; otherwise an error that
// wraps ErrParameter or ErrRate, and says what would be right.
func (q LeakyQueue) Validate() error {
	if err := q.Rate.Validate(); err != nil {
		return err
	}
	if q.Depth < 1 {
		return fmt.Errorf("%w: depth %d: want at least 1", ErrParameter, q.Depth)
	}
	if _, ok := q.Rate.span(q.Depth); !ok {
		return fmt.Errorf("%w: depth %d at %v takes longer than %v to leave: want a smaller depth or a faster rate",
			ErrParameter, q.Depth, q.Rate, MaxSpan)
	}
	return nil
}

// Offer decides about one job at the instant now (µs since the epoch) and returns the
// next state. A refusal changes nothing, except that a clock found to have stepped back
// is noted, without which the wait would never end. The queue must be valid.
func (q LeakyQueue) Offer(t Timeline, now int64) (Timeline, QueueDecision) {
	now = clampInstant(now)
	t = t.rebase(q.Rate, now)
	wait := t.next(q.Rate, now).sub(span{us: now}, q.Rate.Events)
	most, _ := q.Rate.span(q.Depth - 1)
	if most.less(wait) {
		return t, QueueDecision{RetryAfter: micros(wait.sub(most, q.Rate.Events).ceil())}
	}
	_, t = t.Grant(q.Rate, now)
	return t, QueueDecision{Allowed: true, Wait: micros(wait.ceil())}
}

// Level returns how many departures are still to come at now, counting one that left
// less than an interval ago: how many of Depth's places are taken.
func (q LeakyQueue) Level(t Timeline, now int64) int64 {
	now = clampInstant(now)
	wait := t.rebase(q.Rate, now).next(q.Rate, now).sub(span{us: now}, q.Rate.Events)
	n := wait.count(q.Rate.Events, q.Rate.PeriodMicros())
	if whole, ok := q.Rate.span(n); ok && whole.less(wait) {
		n++ // a place is free again only when its interval is over
	}
	return n
}
