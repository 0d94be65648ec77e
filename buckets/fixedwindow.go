package buckets

// WindowState is what a fixed window keeps of one key. The zero value is a key never used.
//
// The window's start is kept, not its number, so that a window of another length can
// take over: what was counted stays counted in the window that its start now falls into.
type WindowState struct {
	start int64 // of the newest window seen, µs
	count int64
}

// Take asks for n at the instant now (µs since the epoch) and counts it if it passes.
// It is a function of its arguments and the state alone; the parameters may change from call
// to call. Errors are those of a Limiter.
func (s *WindowState) Take(params Params, now, n int64) (Decision, error) {
	return takeOne(params, []Algorithm{FixedWindow}, n, func(p *plan, n int64) answer { return s.take(p, clampInstant(now), n) })
}

func (s *WindowState) take(p *plan, now, n int64) answer {
	if now < s.start {
		if s.start-now > p.back {
			s.start = now - now%p.window // the count stays: a step back is no new window
		} else {
			now = s.start // stay in the newest window
		}
	}
	begin := now - now%p.window
	if begin > s.start {
		s.start, s.count = begin, 0
	}
	ok := n == 0 || s.count+n <= p.limit
	if ok {
		s.count += n
	}
	return p.windowAnswer(n, ok, begin+p.window-now, s.count)
}

// windowAnswer takes the time left in the window, and the count after the call.
func (p *plan) windowAnswer(n int64, ok bool, left, count int64) answer {
	a := answer{ok: ok, remaining: max(0, p.limit-count)}
	if !ok {
		a.retry = left
	}
	if count > 0 {
		a.reset = left
	}
	return a
}

func (s *WindowState) idle(p *plan) int64 { return s.start + p.window }
func (s *WindowState) extra() int         { return 0 }
func (s *WindowState) clone() WindowState { return *s }
