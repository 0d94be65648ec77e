package buckets

import "slices"

// LogState is what a sliding log keeps of one key: when each request passed. The zero
// value is a key never used. Requests at one instant share an entry, so its size is
// bounded by the limit and by the number of instants.
type LogState struct {
	runs []run // oldest first
	head int   // the first that is not expired
}

// run is n requests at one instant; before is how many passed earlier, so that a count
// is one subtraction and an old entry is found by bisection.
type run struct {
	at     int64 // µs
	n      int64
	before int64
}

// Take asks for n at the instant now (µs since the epoch) and remembers it if it passes. It is a
// function of its arguments and the state alone; the parameters may change from call to call.
// Errors are those of a Limiter.
func (s *LogState) Take(params Params, now, n int64) (Decision, error) {
	return takeOne(params, []Algorithm{SlidingLog}, n, func(p *plan, n int64) answer { return s.take(p, clampInstant(now), n) })
}

func (s *LogState) take(p *plan, now, n int64) answer {
	if len(s.runs) > 0 {
		if newest := s.runs[len(s.runs)-1].at; newest-now > p.back {
			for i := range s.runs {
				s.runs[i].at -= newest - now
			}
		} else {
			now = max(now, newest)
		}
	}
	s.expire(now - p.window)
	count := s.count()
	ok := n == 0 || count+n <= p.limit
	if ok && n > 0 {
		s.append(now, n)
		count += n
	}
	var newest, blocker int64
	if live := s.runs[s.head:]; len(live) > 0 {
		newest = live[len(live)-1].at
		if !ok {
			blocker = live[oldest(live, count+n-p.limit)].at
		}
	}
	return p.logAnswer(n, ok, count, now-newest, now-blocker)
}

// oldest returns the index of the run that holds the k-th oldest request, k ≥ 1.
func oldest(live []run, k int64) int {
	first := live[0].before
	i, _ := slices.BinarySearchFunc(live, first+k, func(r run, want int64) int {
		if r.before+r.n < want {
			return -1
		}
		return 1
	})
	return i
}

// logAnswer takes the count after the call and the ages of the newest request and of
// the one whose expiry would let n pass.
func (p *plan) logAnswer(n int64, ok bool, count, newest, blocker int64) answer {
	a := answer{ok: ok, remaining: max(0, p.limit-count)}
	if !ok {
		a.retry = p.window - blocker
	}
	if count > 0 {
		a.reset = p.window - newest
	}
	return a
}

func (s *LogState) count() int64 {
	if s.head == len(s.runs) {
		return 0
	}
	last := s.runs[len(s.runs)-1]
	return last.before + last.n - s.runs[s.head].before
}

func (s *LogState) append(now, n int64) {
	before := int64(0)
	if i := len(s.runs) - 1; i >= s.head && i >= 0 {
		if s.runs[i].at == now {
			s.runs[i].n += n
			return
		}
		before = s.runs[i].before + s.runs[i].n
	}
	if len(s.runs) == cap(s.runs) && s.head > len(s.runs)/4 {
		s.compact() // enough have expired to make room, and to pay for the move
	}
	s.runs = append(s.runs, run{at: now, n: n, before: before})
}

// expire drops the runs up to the instant cutoff.
func (s *LogState) expire(cutoff int64) {
	for s.head < len(s.runs) && s.runs[s.head].at <= cutoff {
		s.head++
	}
	if s.head == len(s.runs) {
		s.runs, s.head = s.runs[:0], 0
	}
}

// compact moves the live runs to the front; an array more than four times too large for them is
// given back.
func (s *LogState) compact() {
	live := s.runs[s.head:]
	if cap(s.runs) > 16 && len(live) < cap(s.runs)/4 {
		s.runs = append(make([]run, 0, 2*len(live)+1), live...)
	} else {
		s.runs = s.runs[:copy(s.runs, live)]
	}
	s.head = 0
}

func (s *LogState) idle(p *plan) int64 {
	if len(s.runs) == 0 {
		return 0
	}
	return s.runs[len(s.runs)-1].at + p.window
}

// clone copies what is live, so that a dry run leaves the original as it was.
func (s *LogState) clone() LogState {
	return LogState{runs: slices.Clone(s.runs[s.head:])}
}

func (s *LogState) extra() int { return cap(s.runs) * 24 }
