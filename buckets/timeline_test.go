package buckets

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTimelineHasNoDrift(t *testing.T) {
	var tl Timeline
	first := tl.take(PerSecond(7), t0, Terms{})
	for k := int64(1); k <= 700_000; k++ {
		slot := tl.take(PerSecond(7), t0, Terms{})
		if want := first + (k*1_000_000+6)/7; slot != want {
			t.Fatalf("slot %d is %d µs after the first, want %d", k, slot-first, want-first)
		}
	}
	if tl.Slot != first+100_000_000_000 || tl.Next != tl.Slot+142_857 || tl.Rem != 1 {
		t.Errorf("slot 700000 is %d µs after the first, want 100000 s exactly", tl.Slot-first)
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
		terms Terms
	}{
		{"10/s", PerSecond(10), []step{
			{0, 0}, // an idle timeline lets the first go at once
			{0, 100 * ms},
			{50 * ms, 200 * ms},
			{5000 * ms, 5000 * ms}, // idle for 4.7 s: no credit,
			{5000 * ms, 5100 * ms}, // the next still waits its interval
		}, Terms{}},
		{"10/s, 10 ms are made up", PerSecond(10), []step{
			{0, 0},
			{105 * ms, 100 * ms}, // 5 ms late: the slot stands
			{205 * ms, 200 * ms},
			{311 * ms, 311 * ms}, // 11 ms late: a new row begins
			{411 * ms, 411 * ms},
		}, Terms{Grace: 10 * time.Millisecond}},
		{"10/s, a restart may have forgotten a grant", PerSecond(10), []step{
			{0, 160 * ms},                // an interval after what may have lain 60 ms ahead of the restart
			{0, 260 * ms},                // and then as ever
			{100_000 * ms, 100_000 * ms}, // long after
		}, Terms{Epoch: t0, Ahead: 60 * time.Millisecond}},
		{"10/s, a new one waits no interval", PerSecond(10), []step{
			{0, 90 * ms},
			{0, 190 * ms},
		}, Terms{Epoch: t0, Ahead: 60 * time.Millisecond, Most: 30 * time.Millisecond}},
		{"10/s, the clock steps", PerSecond(10), []step{
			{0, 0},
			{1000 * ms, 1000 * ms},
			{950 * ms, 1050 * ms},              // back by 50 ms: the interval counts from now
			{-3_600_000 * ms, -3_599_800 * ms}, // back by an hour: 1150 was 200 ms after 950, so it is 200 ms ahead of now
			{-3_600_000 * ms, -3_599_700 * ms},
			{86_400_000 * ms, 86_400_000 * ms}, // ahead by a day: no burst
			{86_400_000 * ms, 86_400_100 * ms},
			{0, 200 * ms}, // and back: the promise of 86400.2 s moves along
		}, Terms{}},
		{"3/s", PerSecond(3), []step{
			{0, 0}, {0, 333_334}, {0, 666_667}, {0, 1_000_000}, // rounded up, each on its own
		}, Terms{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var tl Timeline
			for i, s := range tc.steps {
				if slot := tl.take(tc.rate, t0+s.at, tc.terms); slot-t0 != s.slot {
					t.Errorf("step %d: a grant at %d gets %d, want %d", i, s.at, slot-t0, s.slot)
				}
			}
		})
	}
}

// A grant that a timeline assumed after one restart need not be assumed again after the next.
func TestTimelineSettlesOnce(t *testing.T) {
	const ms = int64(1000)
	terms := func(epoch int64) Terms { return Terms{Epoch: t0 + epoch*ms, Ahead: 60 * time.Millisecond} }
	tl := Timeline{}.Grant(PerSecond(10), t0-30*ms, t0-30*ms, Terms{})
	if e := tl.Earliest(PerSecond(10), t0, terms(0)); e != t0+70*ms {
		t.Errorf("the next departure is further ahead than a forgotten one can be, and it is put off to %d µs", e-t0)
	}
	tl = Timeline{}.Settled(PerSecond(10), t0, terms(0))
	if e := tl.Earliest(PerSecond(10), t0+90*ms, terms(90)); e != t0+160*ms {
		t.Errorf("after restarts at 0 and 90 ms the first may leave at %d µs, want 160 ms", e-t0)
	}
	if e := tl.Earliest(PerSecond(10), t0+110*ms, terms(110)); e != t0+270*ms {
		t.Errorf("after a restart at 110 ms, when that of 160 ms can have been granted, the first may leave at %d µs, want 270 ms", e-t0)
	}
}

// A rate that changes after a restart, before the timeline is looked at again, hides no grant that
// was forgotten at the rate before it; and neither does one that changed before the restart.
func TestTimelineThatForgotAGrantAndChangesItsRate(t *testing.T) {
	const ms = int64(1000)
	terms := Terms{Epoch: t0 + 50*ms, Ahead: 60 * time.Millisecond} // a slot before 110 ms may be forgotten
	tl := Timeline{}.Grant(PerSecond(10), t0, t0, Terms{})          // as the one of 100 ms
	slower := Rate{Events: 1, Period: 115 * time.Millisecond}
	if e := tl.Earliest(slower, t0+50*ms, terms); e != t0+225*ms {
		t.Errorf("one interval of 115 ms may leave at %d µs, want 225 ms: that after 110 ms", e-t0)
	}
	tl = Timeline{}.Grant(slower, t0, t0, Terms{}) // that of 115 ms cannot be forgotten, and one of 100 ms can
	if e := tl.Earliest(PerSecond(10), t0+50*ms, terms); e != t0+210*ms {
		t.Errorf("one interval of 100 ms may leave at %d µs, want 210 ms: that after 110 ms", e-t0)
	}
}

func TestTimelineFollowsAChangedRate(t *testing.T) {
	var tl Timeline
	tl.take(PerSecond(1), t0, Terms{})
	slot := tl.take(PerSecond(7), t0, Terms{})
	if want := t0 + 142_858; slot != want {
		t.Errorf("after a change to 7/s the slot is %d, want %d: the last slot and one new interval", slot-t0, want-t0)
	}
	// The last slot stood for 142857 1/7, and 1/7 is no tenth: rounded up once.
	slot = tl.take(PerSecond(10), t0, Terms{})
	if want := t0 + 242_858; slot != want {
		t.Errorf("after a change to 10/s the slot is %d, want %d", slot-t0, want-t0)
	}
}

// A slot that is later than the earliest, since something else binds, counts as it stands.
func TestTimelineTakesALaterSlot(t *testing.T) {
	tl := Timeline{}.Grant(PerSecond(10), t0, t0, Terms{}).Grant(PerSecond(10), t0+130_000, t0, Terms{})
	if e := tl.Earliest(PerSecond(10), t0, Terms{}); e != t0+230_000 {
		t.Errorf("the next is %d µs after the first, want 230 ms", e-t0)
	}
}

// take grants the earliest slot.
func (t *Timeline) take(r Rate, now int64, terms Terms) int64 {
	slot := t.Earliest(r, now, terms)
	*t = t.Grant(r, slot, now, terms)
	return slot
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
	if iv := interval(r); iv.us > maxSpanMicros/1000 {
		r.Period = time.Hour
	}
	return r
}

// Whatever the arrivals: slots are at least one interval apart, never early, and no
// window W holds more than 1 + ⌊W/T⌋ of them.
func TestTimelineSpacing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawQuickRate(t)
		iv := interval(r)
		now, tl := t0, Timeline{}
		grace := micros(rapid.SampledFrom([]int64{0, 1, 10_000}).Draw(t, "grace"))
		var slots []int64
		for range rapid.IntRange(2, 60).Draw(t, "jobs") {
			now += rapid.Int64Range(0, 3*iv.us+3).Draw(t, "wait")
			slot := tl.take(r, now, Terms{Grace: grace})
			if slot < now-grace.Microseconds() {
				t.Fatalf("slot %d is before now, %d, by more than the grace", slot, now)
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

// The clock may step as it likes. Nobody waits longer than two intervals beyond what the grant
// before was told (its own turn, and one for the step), and only a step forward, which looks like
// idle time, can make a gap short: that one gap.
func TestTimelineClockSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := PerSecond(rapid.Int64Range(1, 1000).Draw(t, "rate"))
		iv := interval(r)
		elapsed, offset, tl := int64(0), t0, Timeline{}
		prev, told := -iv.us-1, int64(0)
		for range rapid.IntRange(2, 60).Draw(t, "jobs") {
			elapsed += rapid.Int64Range(0, 2*iv.us).Draw(t, "elapsed")
			step := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(-2*iv.us, 2*iv.us),
				rapid.SampledFrom([]int64{-3_600_000_000, 300 * 86_400_000_000})).Draw(t, "step")
			offset += step
			slot := tl.take(r, elapsed+offset, Terms{})
			start := slot - offset
			if start < elapsed {
				t.Fatalf("start %d is before now, %d", start, elapsed)
			}
			if gap := start - prev; gap < iv.us-1 && step <= 0 {
				t.Fatalf("a gap of %d µs at %v without a step forward", gap, r)
			}
			if wait := start - elapsed; wait > told+2*iv.us+2 {
				t.Fatalf("a wait of %d µs after one of %d, and the interval is %d", wait, told, iv.us)
			}
			prev, told = start, start-elapsed
		}
	})
}
