package buckets

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// opener makes an empty limiter that reads the time from clock. Every store runs the
// whole suite: see TestMemory, and TestMiniredis and TestRedis.
type opener func(t testing.TB, params Params, clock func() int64) settable

type settable interface {
	Limiter
	Set(Params) error
	Check(ctx context.Context, key string, n int64) (Decision, error)
}

// fixture is a fresh limiter with a clock of ours and a key of its own.
type fixture struct {
	t     testing.TB
	l     settable
	now   int64
	key   string
	limit int64
}

func newFixture(t testing.TB, open opener, params Params) *fixture {
	f := &fixture{t: t, now: t0, key: "k", limit: params.Limit}
	f.l = open(t, params, func() int64 { return f.now })
	return f
}

// ask sets the clock and asks; a cost beyond the limit has its error and an answer.
func (f *fixture) ask(at, n int64) Decision {
	f.t.Helper()
	f.now = at
	d, err := f.l.AllowN(context.Background(), f.key, n)
	if n > f.limit != errors.Is(err, ErrTooLarge) || (err != nil && !errors.Is(err, ErrTooLarge)) {
		f.t.Fatalf("AllowN(%d) of %d: %v", n, f.limit, err)
	}
	return d
}

func (v vector) params() Params {
	s := Params{Algorithm: Algorithm(v.Algorithm)}
	switch s.Algorithm {
	case TokenBucket, LeakyBucket:
		s.Limit, s.Rate = v.Params.Capacity, v.rate()
	default:
		s.Limit, s.Window = v.Params.Limit, micros(v.Params.Window)
	}
	return s
}

func runSuite(t *testing.T, open opener) {
	t.Run("vectors", func(t *testing.T) { suiteVectors(t, open) })
	t.Run("textbook", func(t *testing.T) { suiteTextbook(t, open) })
	t.Run("costs", func(t *testing.T) { suiteCosts(t, open) })
	t.Run("refusal", func(t *testing.T) { suiteRefusal(t, open) })
	t.Run("peek and reset", func(t *testing.T) { suitePeekReset(t, open) })
	t.Run("live change", func(t *testing.T) { suiteLiveChange(t, open) })
	t.Run("clock", func(t *testing.T) { suiteClock(t, open) })
	t.Run("extremes", func(t *testing.T) { suiteExtremes(t, open) })
	t.Run("properties", func(t *testing.T) { suiteProperties(t, open) })
	t.Run("reference", func(t *testing.T) { suiteReference(t, open) })
	t.Run("duals", func(t *testing.T) { suiteDuals(t, open) })
}

func suiteVectors(t *testing.T, open opener) {
	n := 0
	for _, v := range loadVectors(t) {
		if v.Algorithm == "leaky-queue" {
			continue
		}
		f := newFixture(t, open, v.params())
		for i, row := range v.Rows {
			got := f.ask(row.T, row.N)
			want := Decision{row.OK, f.limit, row.Remaining, micros(row.Retry), micros(row.Reset)}
			if row.Retry < 0 {
				want.RetryAfter = Never
			}
			if got != want {
				t.Errorf("%s, %+v, row %d (at %d, cost %d): got %+v, want %+v", v.Name, v.params(), i, row.T-v.Rows[0].T, row.N, got, want)
				break
			}
			n++
		}
	}
	if n < 100 {
		t.Errorf("only %d rows", n)
	}
}

// suiteTextbook runs the traces that the descriptions of the algorithms give.
func suiteTextbook(t *testing.T, open opener) {
	const ms, s = int64(1000), int64(1_000_000)
	minute := t0 - t0%(60*s) // an edge of the window
	type step struct {
		at        int64
		n         int64
		ok        bool
		remaining int64
	}
	window := func(a Algorithm, limit int64) Params { return Params{Algorithm: a, Limit: limit, Window: time.Minute} }
	bucket := []step{
		{0, 1, true, 2}, // starts full
		{0, 1, true, 1},
		{0, 1, true, 0},
		{0, 1, false, 0},
		{500 * ms, 1, false, 0}, // half a token is none
		{1 * s, 1, true, 0},
		{10 * s, 1, true, 2}, // nine seconds later: capped at 3, not 9
	}
	for _, tc := range []struct {
		params Params
		steps  []step
	}{
		{Params{Algorithm: TokenBucket, Limit: 3, Rate: PerSecond(1)}, bucket},
		{Params{Algorithm: LeakyBucket, Limit: 3, Rate: PerSecond(1)}, bucket}, // the dual: level = 3 − tokens
		{Params{Algorithm: LeakyBucket, Limit: 6, Rate: PerSecond(10)}, []step{
			// nginx: limit_req rate=10r/s burst=5 nodelay, eight at once. Its burst counts what
			// is beyond the one that passes anyway, so our limit is burst + 1.
			{0, 1, true, 5}, {0, 1, true, 4}, {0, 1, true, 3}, {0, 1, true, 2}, {0, 1, true, 1}, {0, 1, true, 0},
			{0, 1, false, 0}, {0, 1, false, 0},
		}},
		{window(FixedWindow, 3), []step{
			{59 * s, 1, true, 2}, {59 * s, 1, true, 1}, {59 * s, 1, true, 0},
			{59 * s, 1, false, 0},
			{61 * s, 1, true, 2}, {61 * s, 1, true, 1}, {61 * s, 1, true, 0}, // six within two seconds
		}},
		{window(SlidingLog, 3), []step{
			{59 * s, 1, true, 2}, {59 * s, 1, true, 1}, {59 * s, 1, true, 0},
			{61 * s, 1, false, 0},
			{119*s - 1, 1, false, 0}, // one microsecond before the three are a minute old
			{119 * s, 3, true, 0},
		}},
		{window(SlidingCounter, 3), []step{
			{59 * s, 1, true, 2}, {59 * s, 1, true, 1}, {59 * s, 1, true, 0},
			{61 * s, 1, true, 0},  // the estimate is 3 × 59/60 = 2.95: one slips through
			{61 * s, 1, false, 0}, // now 3.95
		}},
		{window(SlidingCounter, 100), []step{
			{0, 80, true, 20},
			{90 * s, 20, true, 40}, // 80 × ½ + 20 = 60 of 100
			{90 * s, 41, false, 40},
			{90 * s, 40, true, 0},
		}},
	} {
		f := newFixture(t, open, tc.params)
		for i, st := range tc.steps {
			if d := f.ask(minute+st.at, st.n); d.Allowed != st.ok || d.Remaining != st.remaining {
				t.Errorf("%+v, step %d: %+v, want %v with %d left", tc.params, i, d, st.ok, st.remaining)
			}
		}
	}
}

// paramSets is one of each, small enough to fill.
func paramSets() []Params {
	return []Params{
		{Algorithm: FixedWindow, Limit: 5, Window: 10 * time.Second},
		{Algorithm: SlidingLog, Limit: 5, Window: 10 * time.Second},
		{Algorithm: SlidingCounter, Limit: 5, Window: 10 * time.Second},
		{Algorithm: TokenBucket, Limit: 5, Rate: Rate{7, 10 * time.Second}},
		{Algorithm: LeakyBucket, Limit: 5, Rate: Rate{7, 10 * time.Second}},
	}
}

func suiteCosts(t *testing.T, open opener) {
	ctx := context.Background()
	for _, params := range paramSets() {
		f := newFixture(t, open, params)
		for _, n := range []int64{-1, math.MinInt64} {
			if d, err := f.l.AllowN(ctx, f.key, n); !errors.Is(err, ErrCost) || d != (Decision{}) {
				t.Errorf("%s: AllowN(%d) = %+v, %v; want ErrCost", params.Algorithm, n, d, err)
			}
		}
		f.ask(f.now, 2)
		for _, n := range []int64{6, 1e18, math.MaxInt64} {
			d := f.ask(f.now, n)
			if d.Allowed || d.RetryAfter != Never || d.Remaining != 3 || d.Limit != 5 {
				t.Errorf("%s: cost %d: %+v, want refused for ever, 3 of 5 left", params.Algorithm, n, d)
			}
		}
		for _, key := range []string{"", string(make([]byte, MaxKeyLen+1))} {
			if _, err := f.l.Allow(ctx, key); !errors.Is(err, ErrKey) {
				t.Errorf("%s: a key of %d bytes: %v, want ErrKey", params.Algorithm, len(key), err)
			}
		}
		if d := f.ask(f.now, 3); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%s: after all that the rest is %+v, want 3 to pass", params.Algorithm, d)
		}
	}
}

// A refusal takes nothing: what could pass before can pass after.
func suiteRefusal(t *testing.T, open opener) {
	for _, params := range paramSets() {
		f := newFixture(t, open, params)
		f.ask(f.now, 4)
		first := f.ask(f.now, 2)
		for range 20 {
			if d := f.ask(f.now, 2); d != first || d.Allowed {
				t.Errorf("%s: refused with %+v, then %+v", params.Algorithm, first, d)
			}
		}
		if d := f.ask(f.now, 1); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%s: the last one: %+v", params.Algorithm, d)
		}
	}
}

func suitePeekReset(t *testing.T, open opener) {
	ctx := context.Background()
	for _, params := range paramSets() {
		f := newFixture(t, open, params)
		full, err := f.l.Peek(ctx, f.key)
		if err != nil || full != (Decision{Allowed: true, Limit: 5, Remaining: 5}) {
			t.Errorf("%s: Peek at a new key: %+v, %v", params.Algorithm, full, err)
		}
		would, err := f.l.Check(ctx, f.key, 2)
		if err != nil {
			t.Fatal(err)
		}
		if did := f.ask(f.now, 2); did != would {
			t.Errorf("%s: Check said %+v, and AllowN %+v", params.Algorithm, would, did)
		}
		a, _ := f.l.Peek(ctx, f.key)
		b, _ := f.l.Peek(ctx, f.key)
		if a != b || a.Remaining != 3 || a != f.ask(f.now, 0) {
			t.Errorf("%s: Peek %+v, then %+v", params.Algorithm, a, b)
		}
		if other, _ := f.l.Peek(ctx, "other"); other != full {
			t.Errorf("%s: another key: %+v", params.Algorithm, other)
		}
		if err := f.l.Reset(ctx, f.key); err != nil {
			t.Fatal(err)
		}
		if d, _ := f.l.Peek(ctx, f.key); d != full {
			t.Errorf("%s: after Reset: %+v", params.Algorithm, d)
		}
	}
}

// The very next call follows a change, and what was used stays used.
func suiteLiveChange(t *testing.T, open opener) {
	const s = int64(1_000_000)
	set := func(f *fixture, change func(*Params), params *Params) {
		t.Helper()
		change(params)
		if err := f.l.Set(*params); err != nil {
			t.Fatal(err)
		}
		f.limit = params.Limit
	}
	for _, params := range paramSets() {
		f := newFixture(t, open, params)
		now := t0 - t0%(60*s)
		f.ask(now, 5)
		set(f, func(s *Params) { s.Limit = 8 }, &params)
		if d := f.ask(now, 0); d.Remaining != 3 || d.Limit != 8 {
			t.Errorf("%s: limit raised from 5 to 8: %+v, want 3 left", params.Algorithm, d)
		}
		set(f, func(s *Params) { s.Limit = 2 }, &params)
		d := f.ask(now, 1)
		if d.Allowed || d.Remaining != 0 || d.Limit != 2 {
			t.Errorf("%s: limit lowered from 8 to 2 with 5 used: %+v", params.Algorithm, d)
		}
		if again := f.ask(now+d.RetryAfter.Microseconds()-1, 1); again.Allowed {
			t.Errorf("%s: passes before RetryAfter: %+v", params.Algorithm, again)
		}
		if again := f.ask(now+d.RetryAfter.Microseconds(), 1); !again.Allowed {
			t.Errorf("%s: refused after RetryAfter %v: %+v", params.Algorithm, d.RetryAfter, again)
		}
		bad := params
		bad.Limit = 0
		if err := f.l.Set(bad); !errors.Is(err, ErrParameter) {
			t.Errorf("%s: Set with a limit of 0: %v", params.Algorithm, err)
		}
		bad = Params{Algorithm: FixedWindow, Limit: 1, Window: time.Second}
		if params.Algorithm == FixedWindow {
			bad.Algorithm = SlidingLog
		}
		if err := f.l.Set(bad); !errors.Is(err, ErrParameter) {
			t.Errorf("%s: Set of another algorithm: %v", params.Algorithm, err)
		}
	}

	// The level is kept in tokens, whatever the rate.
	params := Params{Algorithm: TokenBucket, Limit: 10, Rate: PerSecond(1)}
	f := newFixture(t, open, params)
	f.ask(t0, 10)
	set(f, func(s *Params) { s.Rate = PerSecond(10) }, &params)
	if d := f.ask(t0, 1); d.Allowed || d.RetryAfter != 100*time.Millisecond || d.ResetAfter != time.Second {
		t.Errorf("empty at 1/s, then 10/s: %+v, want a token in 100 ms and ten in 1 s", d)
	}
	set(f, func(s *Params) { s.Rate = Rate{1, time.Hour} }, &params)
	if d := f.ask(t0, 1); d.Allowed || d.Remaining != 0 || d.RetryAfter != time.Hour {
		t.Errorf("empty at 10/s, then 1/h: %+v, want a token in an hour", d)
	}

	// A window that becomes longer keeps its count, and is left when it ends.
	for _, a := range []Algorithm{FixedWindow, SlidingLog, SlidingCounter} {
		params := Params{Algorithm: a, Limit: 3, Window: time.Second}
		f := newFixture(t, open, params)
		begin := t0 - t0%(60*s)
		f.ask(begin+30*s, 3)
		set(f, func(s *Params) { s.Window = time.Minute }, &params)
		if d := f.ask(begin+50*s, 1); d.Allowed {
			t.Errorf("%s: 1 s made 60 s, with 3 of 3 used: %+v", a, d)
		}
		if d := f.ask(begin+180*s, 1); !d.Allowed {
			t.Errorf("%s: after the longer window: %+v", a, d)
		}
	}
}

// The clock may step: no extra request passes for a step back, and nobody is stalled by
// a clock that was far ahead for one call.
func suiteClock(t *testing.T, open opener) {
	const hour, day = int64(3_600_000_000), int64(86_400_000_000)
	for _, params := range paramSets() {
		t.Run(string(params.Algorithm), func(t *testing.T) {
			f := newFixture(t, open, params)
			f.ask(t0, 5)
			if d := f.ask(t0-1, 1); d.Allowed {
				t.Errorf("1 µs back: %+v", d)
			}
			d := f.ask(t0-hour, 1)
			if d.Allowed || d.RetryAfter > 20*time.Second {
				t.Errorf("an hour back: %+v, want no more than two windows to wait", d)
			}
			if d := f.ask(t0-hour+d.RetryAfter.Microseconds(), 1); !d.Allowed {
				t.Errorf("an hour back, and waited: %+v", d)
			}

			f.key = "ahead"
			f.ask(t0, 5)
			f.ask(t0+300*day, 5) // one call with a wrong clock
			d = f.ask(t0, 1)
			if d.Allowed || d.RetryAfter > 20*time.Second {
				t.Errorf("300 days back again: %+v, want no more than two windows to wait", d)
			}
		})
	}
}

func suiteExtremes(t *testing.T, open opener) {
	for _, params := range []Params{
		{Algorithm: TokenBucket, Limit: MaxLimit, Rate: PerSecond(100_000)},
		{Algorithm: TokenBucket, Limit: MaxLimit, Rate: Rate{MaxEvents, time.Microsecond}},
		{Algorithm: LeakyBucket, Limit: 49, Rate: Rate{1, MaxPeriod}}, // 49 years
		{Algorithm: LeakyBucket, Limit: 1, Rate: Rate{1, time.Hour}},
		{Algorithm: FixedWindow, Limit: MaxLimit, Window: MaxPeriod},
		{Algorithm: SlidingCounter, Limit: MaxLimit, Window: MaxPeriod}, // products of 75 bits
		{Algorithm: SlidingCounter, Limit: MaxLimit, Window: time.Microsecond},
		{Algorithm: SlidingLog, Limit: maxLogLimit, Window: MaxPeriod},
	} {
		for _, at := range []int64{0, 1, t0 + 1, MaxInstant - 1} {
			f := newFixture(t, open, params)
			if d := f.ask(at, params.Limit-1); !d.Allowed || d.Remaining != 1 {
				t.Errorf("%+v at %d: all but one: %+v", params, at, d)
			}
			if d := f.ask(at, 1); !d.Allowed || d.Remaining != 0 {
				t.Errorf("%+v at %d: the last one: %+v", params, at, d)
			}
			d := f.ask(at, 1)
			if d.Allowed || d.RetryAfter < time.Microsecond {
				t.Errorf("%+v at %d: one too many: %+v", params, at, d)
			}
			if at > t0+1 {
				continue // no later instant is left
			}
			if d := f.ask(at+d.RetryAfter.Microseconds()-1, 1); d.Allowed {
				t.Errorf("%+v at %d: 1 µs before RetryAfter: %+v", params, at, d)
			}
			if d := f.ask(at+d.RetryAfter.Microseconds(), 1); !d.Allowed {
				t.Errorf("%+v at %d: after RetryAfter: %+v", params, at, d)
			}
		}
	}
}

func drawParams(t *rapid.T) Params {
	s := Params{
		Algorithm: rapid.SampledFrom(Algorithms()).Draw(t, "algorithm"),
		Limit:     rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, maxLogLimit)).Draw(t, "limit"),
	}
	switch s.Algorithm {
	case TokenBucket, LeakyBucket:
		s.Rate = drawRate(t)
		if s.Validate() != nil {
			s.Rate.Period = time.Second
		}
	default:
		s.Window = micros(rapid.OneOf(rapid.Int64Range(1, 2000), rapid.Int64Range(1, maxPeriodMicros)).Draw(t, "window"))
	}
	return s
}

// scale is a length of time that matters to the limiter, in µs.
func (s Params) scale() int64 {
	if s.Window > 0 {
		return s.Window.Microseconds()
	}
	interval, _ := s.Rate.span(1)
	return max(1, interval.us)
}

func suiteProperties(t *testing.T, open opener) {
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		params := drawParams(rt)
		f := newFixture(t, open, params)
		scale := params.scale()
		for range rapid.IntRange(1, 12).Draw(rt, "calls") {
			at := f.now + rapid.SampledFrom([]int64{0, 0, 1, scale / 3, scale, 2 * scale, -1, -scale}).Draw(rt, "elapsed")
			n := rapid.SampledFrom([]int64{0, 1, 1, 2, 1 + params.Limit/3, params.Limit, params.Limit + 1}).Draw(rt, "n")
			f.now = at
			before, err := f.l.Peek(ctx, f.key)
			if err != nil {
				rt.Fatal(err)
			}
			d := f.ask(at, n)
			if d.Remaining < 0 || d.Remaining > d.Limit || d.Limit != params.Limit || before.Remaining < 0 || before.Remaining > d.Limit {
				rt.Fatalf("%+v: Remaining out of range: %+v, then %+v", params, before, d)
			}
			if want := n == 0 || n <= before.Remaining; d.Allowed != want {
				rt.Fatalf("%+v: %d remain, and cost %d gave %+v", params, before.Remaining, n, d)
			}
			if d.Allowed || n > params.Limit {
				continue
			}
			retry := d.RetryAfter.Microseconds()
			newest := f.newest(rt, at, scale)
			f.now = newest + retry - 1
			if less, err := f.l.Check(ctx, f.key, n); err != nil || less.Allowed || retry < 1 {
				rt.Fatalf("%+v: cost %d passes before RetryAfter %d: %+v, %v", params, n, retry, less, err)
			}
			f.now = newest + retry
			if more, err := f.l.Check(ctx, f.key, n); err != nil || !more.Allowed {
				rt.Fatalf("%+v: cost %d is refused after RetryAfter %d: %+v, %v", params, n, retry, more, err)
			}
			f.now = at
		}
	})
}

// newest finds the instant that the key's clock shows, when ours may be behind: the
// latest at which the answer is still the one given at our own.
func (f *fixture) newest(rt *rapid.T, at, scale int64) int64 {
	ctx := context.Background()
	f.now = at
	here, _ := f.l.Check(ctx, f.key, f.limit)
	lo, hi := at, at+13*scale+13 // same answer at lo; a later one at hi
	for hi-lo > 1 {
		f.now = lo + (hi-lo)/2
		if d, err := f.l.Check(ctx, f.key, f.limit); err != nil {
			rt.Fatal(err)
		} else if d == here {
			lo = f.now
		} else {
			hi = f.now
		}
	}
	return lo
}

// The meter and the token bucket are duals: whatever comes, they answer the same.
func suiteDuals(t *testing.T, open opener) {
	rapid.Check(t, func(rt *rapid.T) {
		params := Params{Algorithm: TokenBucket, Limit: rapid.Int64Range(1, 20).Draw(rt, "limit"), Rate: drawRate(rt)}
		if params.Validate() != nil {
			params.Rate.Period = time.Second
		}
		meter := params
		meter.Algorithm = LeakyBucket
		a, b := newFixture(t, open, params), newFixture(t, open, meter)
		at := t0
		for range rapid.IntRange(1, 15).Draw(rt, "calls") {
			at += rapid.Int64Range(-params.scale(), 3*params.scale()).Draw(rt, "elapsed")
			n := rapid.Int64Range(0, params.Limit+1).Draw(rt, "n")
			if x, y := a.ask(at, n), b.ask(at, n); x != y {
				rt.Fatalf("the bucket says %+v, the meter %+v", x, y)
			}
		}
	})
}

func TestParamsValidate(t *testing.T) {
	for _, tc := range []struct {
		params Params
		want   error
	}{
		{Params{TokenBucket, 5, 0, PerSecond(1)}, nil},
		{Params{FixedWindow, 1000, 24 * time.Hour, Rate{}}, nil},
		{Params{TokenBucket, 0, 0, PerSecond(1)}, ErrParameter},
		{Params{TokenBucket, -1, 0, PerSecond(1)}, ErrParameter},
		{Params{TokenBucket, MaxLimit + 1, 0, PerSecond(1)}, ErrParameter},
		{Params{TokenBucket, 5, 0, Rate{}}, ErrRate},
		{Params{TokenBucket, 5, 0, PerSecond(-1)}, ErrRate},
		{Params{TokenBucket, 5, 0, Rate{1, 0}}, ErrRate},
		{Params{TokenBucket, 5, time.Second, PerSecond(1)}, ErrParameter}, // one too many
		{Params{LeakyBucket, 60, 0, Rate{1, MaxPeriod}}, ErrParameter},    // sixty years to drain
		{Params{FixedWindow, 5, 0, Rate{}}, ErrParameter},
		{Params{FixedWindow, 5, time.Nanosecond, Rate{}}, ErrParameter},
		{Params{FixedWindow, 5, time.Second + 1, Rate{}}, ErrParameter},
		{Params{FixedWindow, 5, -time.Second, Rate{}}, ErrParameter},
		{Params{FixedWindow, 5, MaxPeriod + time.Microsecond, Rate{}}, ErrParameter},
		{Params{FixedWindow, 5, time.Second, PerSecond(1)}, ErrParameter},
		{Params{SlidingLog, maxLogLimit + 1, time.Second, Rate{}}, ErrParameter},
		{Params{"gcra", 5, time.Second, Rate{}}, ErrParameter},
		{Params{}, ErrParameter},
	} {
		if err := tc.params.Validate(); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.params, err, tc.want)
		}
	}
}

func ExampleParams_Validate() {
	fmt.Println(Params{Algorithm: FixedWindow, Limit: 0, Window: time.Minute}.Validate())
	// Output: invalid parameter: fixed-window: limit 0: want 1 to 1000000000
}
