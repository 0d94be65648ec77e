package buckets

import (
	"math/bits"
	"time"
)

// Bounds of instants and spans. An instant plus two spans stays below 2^53, up to which doubles
// hold every whole number, so a Lua script computes exactly what Go computes.
const (
	// MaxSpan bounds a capacity or depth times the interval: 50 years.
	MaxSpan = 50 * 365 * 24 * time.Hour

	// MaxInstant is the newest instant the package knows, in µs since the epoch (year 2154).
	MaxInstant = int64(1<<53) - 1 - 2*maxSpanMicros - maxPeriodMicros

	maxSpanMicros   = int64(MaxSpan / time.Microsecond)
	maxPeriodMicros = int64(MaxPeriod / time.Microsecond)
)

// span is an exact length of time, or an exact instant: us whole microseconds and
// frac/events of one more, 0 ≤ frac < events, where events is the rate's. It exists
// because 1/7 s is not a whole number of anything a clock counts.
type span struct{ us, frac int64 }

// span returns n × Period/Events, and false where that is longer than MaxSpan.
func (r Rate) span(n int64) (span, bool) {
	if n < 0 {
		return span{}, false
	}
	hi, lo := bits.Mul64(uint64(n), uint64(r.periodMicros()))
	if hi >= uint64(r.Events) {
		return span{}, false // the quotient alone needs more than 64 bits
	}
	us, frac := bits.Div64(hi, lo, uint64(r.Events))
	if us >= uint64(maxSpanMicros) {
		return span{}, false
	}
	return span{int64(us), int64(frac)}, true
}

func (a span) add(b span, events int64) span {
	s := span{a.us + b.us, a.frac + b.frac}
	if s.frac >= events {
		s.us, s.frac = s.us+1, s.frac-events
	}
	return s
}

func (a span) sub(b span, events int64) span {
	s := span{a.us - b.us, a.frac - b.frac}
	if s.frac < 0 {
		s.us, s.frac = s.us-1, s.frac+events
	}
	return s
}

func (a span) less(b span) bool { return a.us < b.us || (a.us == b.us && a.frac < b.frac) }

// ceil rounds up to the microsecond: the first instant of a clock that is not too early.
func (a span) ceil() int64 {
	if a.frac > 0 {
		return a.us + 1
	}
	return a.us
}

// count returns how many whole intervals of the rate fit in a, which is not negative.
func (a span) count(events, period int64) int64 {
	if a.us == 0 && a.frac < period {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a.us), uint64(events))
	lo, carry := bits.Add64(lo, uint64(a.frac), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(period))
	return int64(q)
}

// clampInstant brings an instant into the range in which the arithmetic is exact.
func clampInstant(now int64) int64 { return min(max(now, 0), MaxInstant) }

// micros converts whole µs, which the algorithms count in, to a Duration; every span fits, as
// MaxSpan is far below 292 years.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
