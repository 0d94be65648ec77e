package again

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

// What was told is a floor, even beyond Most; chance only adds, and something different for each.
func TestNextIsNeverEarly(t *testing.T) {
	for _, told := range []time.Duration{-1, 0, 1, 7 * ms, 100 * ms, time.Hour} {
		seen := map[time.Duration]bool{}
		for range 100 {
			p := Pause{First: 5 * ms, Most: 400 * ms}
			d := p.Next(told)
			floor := max(told, 5*ms)
			if d < floor || d > floor+min(floor, 400*ms)/4 {
				t.Fatalf("told %v: %v", told, d)
			}
			seen[d] = true
		}
		if len(seen) < 50 {
			t.Errorf("told %v: a hundred who were told the same come back at %d instants", told, len(seen))
		}
	}
}

func TestNextGrows(t *testing.T) {
	p := Pause{First: 4 * ms, Most: 20 * ms}
	for i, floor := range []time.Duration{4 * ms, 6 * ms, 9 * ms, 13500 * time.Microsecond, 20 * ms, 20 * ms} {
		if d := p.Next(0); d < floor || d > floor*5/4 {
			t.Errorf("pause %d: %v, want %v and up to a quarter more", i, d, floor)
		}
	}
	p.Reset()
	if d := p.Next(0); d > 5*ms {
		t.Errorf("after Reset %v", d)
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := Pause{First: ms, Most: 400 * ms}
		begun := time.Now()
		if !p.Wait(ctx, 500*ms) || time.Since(begun) < 500*ms {
			t.Errorf("told 500ms, waited %v", time.Since(begun))
		}
		if p.Wait(ctx, time.Hour) || time.Since(begun) != time.Second {
			t.Errorf("ctx ended, and it waited for %v", time.Since(begun))
		}
	})
}
