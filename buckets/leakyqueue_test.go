package buckets

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const t0 = int64(1_700_000_000_000_000)

func TestLeakyQueueVectors(t *testing.T) {
	n := 0
	for _, v := range loadVectors(t) {
		if v.Algorithm != "leaky-queue" {
			continue
		}
		n++
		q, tl := LeakyQueue{v.Params.Depth, v.rate()}, Timeline{}
		for i, row := range v.Rows {
			var d QueueDecision
			tl, d = q.Offer(tl, row.T)
			if d.Allowed != row.OK || d.Wait != micros(row.Wait) || d.RetryAfter != micros(row.Retry) {
				t.Errorf("%s, row %d: got %+v, want %+v", v.Name, i, d, row)
				break
			}
		}
	}
	if n == 0 {
		t.Error("no vector for the leaky queue")
	}
}

func TestTimelineHasNoDrift(t *testing.T) {
	var tl Timeline
	first, tl := tl.Grant(PerSecond(7), t0)
	for k := int64(1); k <= 700_000; k++ {
		var slot int64
		slot, tl = tl.Grant(PerSecond(7), t0)
		if want := first + (k*1_000_000+6)/7; slot != want {
			t.Fatalf("slot %d is %d µs after the first, want %d", k, slot-first, want-first)
		}
	}
	if tl.Last != first+100_000_000_000 || tl.Frac != 0 {
		t.Errorf("slot 700000 is %d+%d/7 µs after the first, want 100000 s exactly", tl.Last-first, tl.Frac)
	}
}

func TestTimelineTrace(t *testing.T) {
	const ms = int64(1000)
	type step struct {
		at, slot int64
	}
	for _, tc := range []struct {
		name  string
		rate  Rate
		steps []step
	}{
		{"10/s", PerSecond(10), []step{
			{0, 0}, // an idle timeline lets the first go at once
			{0, 100 * ms},
			{50 * ms, 200 * ms},
			{5000 * ms, 5000 * ms}, // idle for 4.7 s: no credit,
			{5000 * ms, 5100 * ms}, // the next still waits its interval
		}},
		{"10/s, the clock steps", PerSecond(10), []step{
			{0, 0},
			{1000 * ms, 1000 * ms},
			{950 * ms, 1100 * ms},              // back by less than an interval: waits that much longer
			{-3_600_000 * ms, -3_599_750 * ms}, // back by an hour: 1200 is 250 ms after 950, so 250 ms ahead of now
			{-3_600_000 * ms, -3_599_650 * ms},
			{86_400_000 * ms, 86_400_000 * ms}, // ahead by a day: no burst
			{86_400_000 * ms, 86_400_100 * ms},
			{0, 200 * ms}, // and back: the promise of 86400.2 s moves along
		}},
		{"3/s", PerSecond(3), []step{
			{0, 0}, {0, 333_334}, {0, 666_667}, {0, 1_000_000}, // rounded up, each on its own
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var tl Timeline
			for i, s := range tc.steps {
				if e := tl.Earliest(tc.rate, t0+s.at) - t0; e != s.slot {
					t.Errorf("step %d: Earliest(%d) = %d, want %d", i, s.at, e, s.slot)
				}
				var slot int64
				if slot, tl = tl.Grant(tc.rate, t0+s.at); slot-t0 != s.slot {
					t.Errorf("step %d: Grant(%d) = %d, want %d", i, s.at, slot-t0, s.slot)
				}
			}
		})
	}
}

func TestTimelineFollowsAChangedRate(t *testing.T) {
	_, tl := Timeline{}.Grant(PerSecond(1), t0)
	slot, tl := tl.Grant(PerSecond(7), t0)
	if want := t0 + 142_858; slot != want {
		t.Errorf("after a change to 7/s the slot is %d, want %d: the last slot and one new interval", slot-t0, want-t0)
	}
	slot, _ = tl.Grant(PerSecond(10), t0) // the last slot was 142857 1/7, and 1/7 is no tenth: rounded up once
	if want := t0 + 242_858; slot != want {
		t.Errorf("after a change to 10/s the slot is %d, want %d", slot-t0, want-t0)
	}
}

func TestLeakyQueueLikeLimitReq(t *testing.T) {
	// nginx: "limit_req zone=z burst=5" at 10 r/s, eight requests at once. Its burst
	// counts the waiting ones beside the one that passes, so our depth is burst + 1.
	q, tl := LeakyQueue{Depth: 6, Rate: PerSecond(10)}, Timeline{}
	for i, want := range []time.Duration{0, 100, 200, 300, 400, 500, -1, -1} {
		var d QueueDecision
		tl, d = q.Offer(tl, t0)
		if d.Allowed != (want >= 0) || (d.Allowed && d.Wait != want*time.Millisecond) {
			t.Errorf("request %d: %+v, want a delay of %d ms (-1: refused)", i, d, want)
		}
		if !d.Allowed && d.RetryAfter != 100*time.Millisecond {
			t.Errorf("request %d: RetryAfter %v, want 100ms", i, d.RetryAfter)
		}
	}
}

func TestLeakyQueueValidate(t *testing.T) {
	for _, tc := range []struct {
		q    LeakyQueue
		want error
	}{
		{LeakyQueue{1, PerSecond(1)}, nil},
		{LeakyQueue{1000, Rate{1, time.Hour}}, nil},
		{LeakyQueue{math.MaxInt64, Rate{MaxEvents, time.Microsecond}}, nil}, // 106 days' worth
		{LeakyQueue{0, PerSecond(1)}, ErrParameter},
		{LeakyQueue{-1, PerSecond(1)}, ErrParameter},
		{LeakyQueue{1000, Rate{1, MaxPeriod}}, ErrParameter}, // a thousand years
		{LeakyQueue{math.MaxInt64, Rate{1, MaxPeriod}}, ErrParameter},
		{LeakyQueue{1, Rate{}}, ErrRate},
	} {
		if err := tc.q.Validate(); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.q, err, tc.want)
		}
	}
}

func drawRate(t *rapid.T) Rate {
	return Rate{
		Events: rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, MaxEvents)).Draw(t, "events"),
		Period: micros(rapid.OneOf(rapid.Int64Range(1, 2_000_000), rapid.Int64Range(1, maxPeriodMicros)).Draw(t, "period")),
	}
}

// drawQuickRate draws a rate of which a test's few hundred intervals end before MaxInstant.
func drawQuickRate(t *rapid.T) Rate {
	r := drawRate(t)
	if interval, _ := r.span(1); interval.us > maxSpanMicros/1000 {
		r.Period = time.Hour
	}
	return r
}

// Whatever the arrivals: slots are at least one interval apart, never early, and no
// window W holds more than 1 + ⌊W/T⌋ of them.
func TestTimelineSpacing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawQuickRate(t)
		interval, _ := r.span(1)
		now, tl := t0, Timeline{}
		var slots []int64
		for range rapid.IntRange(2, 60).Draw(t, "jobs") {
			// Steps back of up to an interval are waited for; slots stay in order.
			now += rapid.Int64Range(-interval.us/60, 3*interval.us+3).Draw(t, "wait")
			var slot int64
			slot, tl = tl.Grant(r, now)
			if slot < now {
				t.Fatalf("slot %d is before now, %d", slot, now)
			}
			slots = append(slots, slot)
		}
		for i := range slots {
			for j := i + 1; j < len(slots); j++ {
				// k intervals fit between slot i and slot j: k×Period ≤ (W+1)×Events, the 1 for
				// the rounding of slots to whole µs, which is not accumulated.
				w := slots[j] - slots[i]
				if n, ok := r.span(int64(j - i)); !ok || n.us > w {
					t.Fatalf("%d slots within %d µs at %v: the window holds more than 1 + W/T", j-i+1, w, r)
				}
			}
		}
	})
}

// The clock may step as it likes. Nobody waits longer than two intervals beyond what the
// grant before was told (its own turn, and one for the step), and only a step forward, which looks like idle time, can
// make a gap short: that one gap.
func TestTimelineClockSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := PerSecond(rapid.Int64Range(1, 1000).Draw(t, "rate"))
		interval, _ := r.span(1)
		elapsed, offset, tl := int64(0), t0, Timeline{}
		prev, told := -interval.us-1, int64(0)
		for range rapid.IntRange(2, 60).Draw(t, "jobs") {
			elapsed += rapid.Int64Range(0, 2*interval.us).Draw(t, "elapsed")
			step := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(-2*interval.us, 2*interval.us),
				rapid.SampledFrom([]int64{-3_600_000_000, 300 * 86_400_000_000})).Draw(t, "step")
			offset += step
			var slot int64
			slot, tl = tl.Grant(r, elapsed+offset)
			start := slot - offset
			if start < elapsed {
				t.Fatalf("start %d is before now, %d", start, elapsed)
			}
			if gap := start - prev; gap < interval.us-1 && step <= 0 {
				t.Fatalf("a gap of %d µs at %v without a step forward", gap, r)
			}
			if wait := start - elapsed; wait > told+2*interval.us+2 {
				t.Fatalf("a wait of %d µs after one of %d, and the interval is %d", wait, told, interval.us)
			}
			prev, told = start, start-elapsed
		}
	})
}

func TestLeakyQueueProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := LeakyQueue{Depth: rapid.Int64Range(1, 9).Draw(t, "depth"), Rate: drawQuickRate(t)}
		interval, _ := q.Rate.span(1)
		now, tl := t0, Timeline{}
		var leave []int64
		for range rapid.IntRange(1, 60).Draw(t, "jobs") {
			now += rapid.SampledFrom([]int64{0, 0, 1, interval.us / 3, interval.us, 4 * interval.us}).Draw(t, "elapsed")
			leave = slices.DeleteFunc(leave, func(at int64) bool { return at <= now })
			level := q.Level(tl, now)
			if level < 0 || level > q.Depth {
				t.Fatalf("level %d of %d", level, q.Depth)
			}
			before := tl
			var d QueueDecision
			tl, d = q.Offer(tl, now)
			if d.Allowed != (level < q.Depth) {
				t.Fatalf("%d of %d places taken, and Offer says %+v", level, q.Depth, d)
			}
			if d.Allowed {
				leave = append(leave, now+d.Wait.Microseconds())
				if int64(len(leave)) > q.Depth {
					t.Fatalf("%d wait in a queue of %d", len(leave), q.Depth)
				}
				continue
			}
			if tl != before {
				t.Fatalf("a refusal changed %+v to %+v", before, tl)
			}
			retry := d.RetryAfter.Microseconds()
			if _, d := q.Offer(tl, now+retry); !d.Allowed {
				t.Fatalf("refused after waiting RetryAfter, %d µs", retry)
			}
			if _, d := q.Offer(tl, now+retry-1); retry < 1 || d.Allowed {
				t.Fatalf("RetryAfter of %d µs is not the least wait", retry)
			}
		}
	})
}
