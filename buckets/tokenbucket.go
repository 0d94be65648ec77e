package buckets

import "math"

// BucketState is what a token bucket or a leaky bucket (as a meter) keeps of one key. The
// zero value is a key never used: a full token bucket, an empty leaky one.
//
// It is kept as GCRA (ITU-T I.371): tat, the theoretical arrival time, is the instant
// at which the token bucket is full again, and the leaky one empty. So the level is
// (tat − now)/interval and the tokens are Limit less that.
type BucketState struct {
	tat    int64 // µs
	frac   int64 // and this many 1/events µs
	last   int64 // the newest instant at which something was taken, µs
	events int64 // the rate at that time, to keep the level when the rate changes
	period int64 // µs
}

// Take asks for n at the instant now (µs since the epoch) and records it if it passes.
// It is a function of its arguments and the state alone; the parameters may change from call
// to call: the level is kept in tokens, rounded up to a µs of refill, and never exceeds
// the new limit. Errors are those of a Limiter, and leave the state as it was.
func (s *BucketState) Take(params Params, now, n int64) (Decision, error) {
	return takeOne(params, []Algorithm{TokenBucket, LeakyBucket}, n, func(p *plan, n int64) answer { return s.take(p, clampInstant(now), n) })
}

func (s *BucketState) take(p *plan, now, n int64) answer {
	moved := false
	if now < s.last {
		if s.last-now > p.back {
			s.tat -= s.last - now
			s.last, moved = now, true
		} else {
			now = s.last // the clock stepped back: nothing is credited
		}
	}
	used := span{s.tat - now, s.frac}
	if used.us < 0 {
		used = span{}
	}
	if s.events != p.events || s.period != p.period {
		used = p.rescale(used, s.events, s.period)
	}
	if p.full.less(used) {
		used, moved = p.full, true // the limit was lowered: no debt beyond the new one
	}
	if n == 0 {
		if moved {
			s.set(p, now, used)
		}
		return p.bucketAnswer(0, true, used)
	}
	if after := used.add(p.cost(n), p.events); !p.full.less(after) {
		s.set(p, now, after)
		return p.bucketAnswer(n, true, after)
	}
	if moved {
		s.set(p, now, used)
	}
	return p.bucketAnswer(n, false, used)
}

func (s *BucketState) set(p *plan, now int64, used span) {
	s.tat, s.frac, s.last, s.events, s.period = now+used.us, used.frac, now, p.events, p.period
}

// rescale turns a level kept as time at the rate events/period into time at the rate of
// the plan. It is called only when the rate has changed. The script does the same steps in the same
// doubles, so the stores agree; rounding up errs on the side of the limit.
func (p *plan) rescale(used span, events, period int64) span {
	if used == (span{}) {
		return used
	}
	// The conversion around the product forbids a fused multiply-add, which Lua does not have.
	tokens := (float64(float64(used.us)*float64(events)) + float64(used.frac)) / float64(period)
	us := math.Ceil(tokens * float64(p.period) / float64(p.events))
	return span{us: int64(math.Min(us, float64(maxSpanMicros)))}
}

func (p *plan) bucketAnswer(n int64, ok bool, used span) answer {
	a := answer{ok: ok, reset: used.ceil()}
	free := p.full.sub(used, p.events)
	a.remaining = free.count(p.events, p.period)
	if !ok {
		a.retry = p.cost(n).sub(free, p.events).ceil()
	}
	return a
}

func (s *BucketState) idle(*plan) int64   { return span{s.tat, s.frac}.ceil() }
func (s *BucketState) extra() int         { return 0 }
func (s *BucketState) clone() BucketState { return *s }
