package buckets

import (
	"fmt"
	"time"
)

// Algorithm names one of the five algorithms.
type Algorithm string

const (
	// FixedWindow counts in windows aligned to the epoch. One number a key; up to twice
	// the limit may pass around an edge. Fits daily quotas.
	FixedWindow Algorithm = "fixed-window"

	// SlidingLog remembers each request: never more than the limit in any window. Costs
	// some 30 bytes for each one remembered.
	SlidingLog Algorithm = "sliding-log"

	// SlidingCounter weights the count of the window before by its overlap. Two numbers
	// a key, and close to the log where traffic is even.
	SlidingCounter Algorithm = "sliding-counter"

	// TokenBucket lets bursts of up to Limit pass and Rate in the long run. Starts full.
	TokenBucket Algorithm = "token-bucket"

	// LeakyBucket is the leaky bucket as a meter: the level drops at Rate, a request
	// raises it, and what would overflow is refused. The dual of the token bucket: level =
	// Limit − tokens, same answers. (As a queue, which makes jobs wait, see LeakyQueue.)
	LeakyBucket Algorithm = "leaky-bucket"
)

// Algorithms lists all five.
func Algorithms() []Algorithm {
	return []Algorithm{FixedWindow, SlidingLog, SlidingCounter, TokenBucket, LeakyBucket}
}

// MaxLimit is the largest Limit of Params.
const (
	MaxLimit    = 1_000_000_000
	maxLogLimit = 100_000
)

// Params are an algorithm and its parameters. A plain value; compare with ==.
//
// The three windows use Limit and Window, the two buckets Limit (the capacity, or
// depth) and Rate. What an algorithm does not use must be zero.
type Params struct {
	Algorithm Algorithm
	Limit     int64         // up to MaxLimit; of a sliding log, which remembers that many, up to 100,000
	Window    time.Duration // whole µs
	Rate      Rate
}

// Validate returns nil when the algorithm can be computed exactly with these parameters;
// otherwise an error that wraps ErrParameter or ErrRate and says what would be right.
func (s Params) Validate() error {
	_, err := newPlan(s, storeClock)
	return err
}

// plan is valid Params made ready: it has what each call would otherwise compute again.
type plan struct {
	params Params
	limit  int64
	window int64 // µs

	events, period int64  // the rate; period in µs
	fraction       string // the same as the scripts have it, "events/period"
	interval, full span   // Period/Events, and Limit times that

	// back is the largest step back of the clock, in µs, that counts as the same instant;
	// a larger one moves the state back with the clock, or the key would stall.
	back int64

	// note says that looks and refusals record a newer window or an expired entry. It
	// makes no difference unless the clock steps back.
	note bool

	one []any // the script's arguments for a request of 1
}

// clockKind says who tells the time, and so what a step back means.
type clockKind int

const (
	// storeClock is the store's own. It steps back when somebody sets it, or another
	// node with another clock takes over; nobody must then wait more than an interval longer.
	storeClock clockKind = iota

	// callerClock is handed in: a test, a trace, several callers at once. Instants may
	// come out of order by many intervals, and an older one counts as the newest seen.
	callerClock
)

// outOfOrder is how many intervals or windows a caller's clock may be out of order.
const outOfOrder = 64

func newPlan(s Params, kind clockKind) (*plan, error) {
	p := &plan{params: s, limit: s.Limit, note: kind == callerClock}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: "+format, append([]any{ErrParameter, s.Algorithm}, args...)...)
	}
	most := int64(MaxLimit)
	if s.Algorithm == SlidingLog {
		most = maxLogLimit
	}
	if s.Limit < 1 || s.Limit > most {
		return nil, bad("limit %d: want 1 to %d", s.Limit, most)
	}
	switch s.Algorithm {
	case FixedWindow, SlidingLog, SlidingCounter:
		if s.Window < time.Microsecond || s.Window > MaxPeriod || s.Window%time.Microsecond != 0 {
			return nil, bad("window %v: want whole microseconds, 1µs to %v", s.Window, MaxPeriod)
		}
		if !s.Rate.IsZero() {
			return nil, bad("rate %v: want none, a window has a limit", s.Rate)
		}
		p.window = s.Window.Microseconds()
		p.back = p.window
	case TokenBucket, LeakyBucket:
		if err := s.Rate.Validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Algorithm, err)
		}
		if s.Window != 0 {
			return nil, bad("window %v: want none, a bucket has a rate", s.Window)
		}
		p.events, p.period = s.Rate.Events, s.Rate.periodMicros()
		p.fraction = fmt.Sprintf("%d/%d", p.events, p.period)
		p.interval, _ = s.Rate.span(1)
		var ok bool
		if p.full, ok = s.Rate.span(s.Limit); !ok {
			return nil, bad("limit %d at %v takes longer than %v to fill: want a smaller limit or a faster rate", s.Limit, s.Rate, MaxSpan)
		}
		p.back = p.interval.ceil()
	default:
		return nil, fmt.Errorf("%w: algorithm %q: want one of %v", ErrParameter, s.Algorithm, Algorithms())
	}
	if kind == callerClock {
		p.back = min(p.back*outOfOrder, maxSpanMicros)
	}
	p.one = p.args(1)
	return p, nil
}

// cost returns n intervals; n is at most the limit.
func (p *plan) cost(n int64) span {
	switch n {
	case 0:
		return span{}
	case 1:
		return p.interval
	case p.limit:
		return p.full
	}
	c, _ := p.params.Rate.span(n)
	return c
}

// never is the answer to a request beyond the limit: what a look says, but refused.
func (p *plan) never(look answer, n int64) (Decision, error) {
	d := p.decision(look)
	d.Allowed, d.RetryAfter = false, Never
	return d, &TooLargeError{N: n, Limit: p.limit}
}

// answer is a Decision on its way out: without the limit, times in µs. The compiler keeps four
// fields in registers; with five, each return costs as much as the arithmetic.
type answer struct {
	ok                      bool
	remaining, retry, reset int64
}

func (p *plan) decision(a answer) Decision {
	return Decision{
		Allowed: a.ok, Limit: p.limit, Remaining: a.remaining,
		RetryAfter: micros(a.retry), ResetAfter: micros(a.reset),
	}
}

// takeOne is the whole of a pure call: parameters, cost, and the arithmetic.
func takeOne(s Params, want []Algorithm, n int64, take func(p *plan, n int64) answer) (Decision, error) {
	p, err := newPlan(s, callerClock)
	if err != nil {
		return Decision{}, err
	}
	match := false
	for _, a := range want {
		match = match || a == s.Algorithm
	}
	if !match {
		return Decision{}, fmt.Errorf("%w: algorithm %q: want %v for this state", ErrParameter, s.Algorithm, want)
	}
	if err := checkCost(n); err != nil {
		return Decision{}, err
	}
	if n > p.limit {
		return p.never(take(p, 0), n)
	}
	return p.decision(take(p, n)), nil
}
