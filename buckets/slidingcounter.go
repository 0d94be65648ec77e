package buckets

import "math/bits"

// CounterState is what a sliding counter keeps of one key: the count of the newest
// window and of the one before. The zero value is a key never used.
//
// The estimate is previous × overlap + current, and a request of cost 1 passes while it is below
// the limit; so with limit 3 and three requests just before an edge, one slips through at an
// estimate of 2.95. (The formula is Cloudflare's, "How we built rate limiting capable of scaling to
// millions of domains"; compared here without division.)
type CounterState struct {
	start    int64 // of the newest window seen, µs
	previous int64
	current  int64
}

// Take asks for n at the instant now (µs since the epoch) and counts it if it passes.
// It is a function of its arguments and the state alone; the parameters may change from call
// to call. Errors are those of a Limiter.
func (s *CounterState) Take(params Params, now, n int64) (Decision, error) {
	return takeOne(params, []Algorithm{SlidingCounter}, n, func(p *plan, n int64) answer { return s.take(p, clampInstant(now), n) })
}

func (s *CounterState) take(p *plan, now, n int64) answer {
	if now < s.start {
		if s.start-now > p.back {
			s.start = now - now%p.window // the counts stay: a step back is no new window
		} else {
			now = s.start
		}
	}
	begin := now - now%p.window
	if begin > s.start {
		if begin-s.start <= p.window {
			s.previous = s.current
		} else {
			s.previous = 0
		}
		s.start, s.current = begin, 0
	}
	ok := n == 0 || p.counterPasses(s.previous, s.current, now-begin, n)
	if ok {
		s.current += n
	}
	return p.counterAnswer(n, ok, now-begin, s.previous, s.current)
}

// counterPasses reports whether previous × (window − into) < room × window.
func (p *plan) counterPasses(previous, current, into, n int64) bool {
	room := p.limit + 1 - current - n
	if room <= 0 || room > previous {
		return room > 0
	}
	ah, al := bits.Mul64(uint64(previous), uint64(p.window-into))
	bh, bl := bits.Mul64(uint64(room), uint64(p.window))
	return ah < bh || (ah == bh && al < bl)
}

// counterAnswer takes the time into the window, and the counts after the call.
func (p *plan) counterAnswer(n int64, ok bool, into, previous, current int64) answer {
	a := answer{ok: ok}
	hi, lo := bits.Mul64(uint64(previous), uint64(p.window-into))
	whole, _ := bits.Div64(hi, lo, uint64(p.window)) // ≤ previous, so it fits
	a.remaining = max(0, p.limit-current-int64(whole))
	if !ok {
		a.retry = p.counterWait(n, into, previous, current)
	}
	switch {
	case current > 0:
		a.reset = 2*p.window - into
	case previous > 0:
		a.reset = p.window - into
	}
	return a
}

// counterWait returns the shortest wait after which n passes: in this window, once the
// weight of the previous one has fallen enough, or else in the next one, where the
// current count is the previous one.
func (p *plan) counterWait(n, into, previous, current int64) int64 {
	if room := p.limit + 1 - current - n; room > 0 {
		if at := p.window - ceilDiv(room, p.window, previous) + 1; at < p.window {
			return at - into
		}
	}
	at := int64(0)
	if current > 0 {
		at = max(0, p.window-ceilDiv(p.limit+1-n, p.window, current)+1)
	}
	return p.window - into + at
}

// ceilDiv returns ⌈a × b / c⌉, capped at 2^62: further away than any wait.
func ceilDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	hi += carry
	if hi >= uint64(c) {
		return 1 << 62
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, 1<<62))
}

func (s *CounterState) idle(p *plan) int64 {
	switch {
	case s.current > 0:
		return s.start + 2*p.window
	default:
		return s.start + p.window
	}
}

func (s *CounterState) extra() int          { return 0 }
func (s *CounterState) clone() CounterState { return *s }
