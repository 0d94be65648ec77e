package buckets

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The reference: testdata/generate.py in Go, class by class, with its names. Time is
// scaled by events instead of kept with a remainder, so it can only be asked about rates
// whose products fit 64 bits; there it is an oracle that shares no line with the code.
type reference interface {
	call(t, n int64) (ok bool, remaining, retry, reset int64)
}

func newReference(s Params) reference {
	switch s.Algorithm {
	case FixedWindow:
		return &refWindow{L: s.Limit, W: s.Window.Microseconds(), k: -1}
	case SlidingLog:
		return &refLog{L: s.Limit, W: s.Window.Microseconds()}
	case SlidingCounter:
		return &refCounter{L: s.Limit, W: s.Window.Microseconds(), k: -1}
	default:
		return &refBucket{B: s.Limit, r: s.Rate.Events, per: s.Rate.periodMicros()}
	}
}

func refCeil(a, b int64) int64 { return (a + b - 1) / b } // ⌈a/b⌉ for a ≥ 0, b > 0

type refWindow struct{ L, W, k, c int64 }

func (s *refWindow) call(t, n int64) (bool, int64, int64, int64) {
	if k := t / s.W; k > s.k {
		s.k, s.c = k, 0
	}
	t = max(t, s.k*s.W)
	end := (s.k + 1) * s.W
	ok := s.c+n <= s.L
	retry, reset := int64(0), int64(0)
	if ok {
		s.c += n
	} else if retry = end - t; n > s.L {
		retry = -1
	}
	if s.c > 0 {
		reset = end - t
	}
	return ok, s.L - s.c, retry, reset
}

type refLog struct {
	L, W int64
	log  []int64
}

func (s *refLog) call(t, n int64) (bool, int64, int64, int64) {
	if len(s.log) > 0 {
		t = max(t, s.log[len(s.log)-1])
	}
	var live []int64
	for _, x := range s.log {
		if x > t-s.W {
			live = append(live, x)
		}
	}
	s.log = live
	ok := int64(len(s.log))+n <= s.L
	retry, reset := int64(0), int64(0)
	switch {
	case ok:
		for range n {
			s.log = append(s.log, t)
		}
	case n > s.L:
		retry = -1
	default:
		retry = s.log[int64(len(s.log))+n-s.L-1] + s.W - t
	}
	if len(s.log) > 0 {
		reset = s.log[len(s.log)-1] + s.W - t
	}
	return ok, s.L - int64(len(s.log)), retry, reset
}

type refCounter struct{ L, W, k, p, c int64 }

func (s *refCounter) call(t, n int64) (bool, int64, int64, int64) {
	k := t / s.W
	if s.k < 0 {
		s.k = k
	}
	if k > s.k {
		if s.p = 0; k == s.k+1 {
			s.p = s.c
		}
		s.c, s.k = 0, k
	}
	e := max(t, s.k*s.W) - s.k*s.W
	used := func() int64 { return s.p*(s.W-e) + s.c*s.W }
	ok := n <= s.L && (n == 0 || used()+(n-1)*s.W < s.L*s.W)
	retry, reset := int64(0), int64(0)
	switch {
	case ok:
		s.c += n
	case n > s.L:
		retry = -1
	default:
		retry = s.wait(e, n)
	}
	if s.c > 0 {
		reset = 2*s.W - e
	} else if s.p > 0 {
		reset = s.W - e
	}
	remaining := int64(0)
	if free := s.L*s.W - used(); free > 0 {
		remaining = refCeil(free, s.W)
	}
	return ok, remaining, retry, reset
}

func (s *refCounter) wait(e, n int64) int64 {
	if room := (s.L + 1 - s.c - n) * s.W; room > 0 {
		if e2 := s.W - refCeil(room, s.p) + 1; e2 < s.W {
			return e2 - e
		}
	}
	e2 := int64(0)
	if s.c > 0 {
		e2 = max(0, s.W-refCeil((s.L+1-n)*s.W, s.c)+1)
	}
	return s.W - e + e2
}

type refBucket struct{ B, r, per, tat, last int64 }

func (s *refBucket) call(t, n int64) (bool, int64, int64, int64) {
	t = max(t, s.last)
	now := t * s.r
	tat := max(s.tat, now)
	next := tat + n*s.per
	ok := n <= s.B && next-now <= s.B*s.per
	retry := int64(0)
	switch {
	case ok && n > 0:
		s.tat, s.last, tat = next, t, next
	case ok:
	case n > s.B:
		retry = -1
	default:
		retry = refCeil(next-now-s.B*s.per, s.r)
	}
	return ok, (s.B*s.per - (tat - now)) / s.per, retry, refCeil(tat-now, s.r)
}

// suiteReference asks the store and the reference the same.
func suiteReference(t *testing.T, open opener) {
	rapid.Check(t, func(rt *rapid.T) {
		params := Params{
			Algorithm: rapid.SampledFrom(Algorithms()).Draw(rt, "algorithm"),
			Limit:     rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, 1000)).Draw(rt, "limit"),
		}
		switch params.Algorithm {
		case TokenBucket, LeakyBucket:
			params.Rate = Rate{rapid.Int64Range(1, 1000).Draw(rt, "events"), micros(rapid.Int64Range(1, 10_000_000).Draw(rt, "period"))}
		default:
			params.Window = micros(rapid.Int64Range(1, int64(24*time.Hour/time.Microsecond)).Draw(rt, "window"))
		}
		f, oracle := newFixture(t, open, params), newReference(params)
		scale := params.scale()
		at := t0 + rapid.Int64Range(0, scale).Draw(rt, "start")
		for i := range rapid.IntRange(1, 30).Draw(rt, "calls") {
			n := rapid.SampledFrom([]int64{0, 1, 1, 1, 2, 1 + params.Limit/3, params.Limit, params.Limit + 1}).Draw(rt, "n")
			ok, remaining, retry, reset := oracle.call(at, n)
			want := Decision{ok, params.Limit, remaining, micros(retry), micros(reset)}
			if retry < 0 {
				want.RetryAfter = Never
			}
			if got := f.ask(at, n); got != want {
				rt.Fatalf("%+v, call %d at %d, cost %d: got %+v, want %+v", params, i, at, n, got, want)
			}
			at += rapid.SampledFrom([]int64{0, 0, 1, scale / 7, scale / 3, scale, 2 * scale, scale * params.Limit, -1, -scale / 2, -scale}).Draw(rt, "elapsed")
		}
	})
}
