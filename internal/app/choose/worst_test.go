package choose

import (
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// The worst cases that docs/choosing.md states for a limit of 10 in 10 s, or a bucket of 10 at 1/s:
// a greedy client never gets more into any window of 10 s, and does not get much less.
func TestWorstCase(t *testing.T) {
	const window = 10 * time.Second
	limit := func(a buckets.Algorithm) buckets.Params {
		return buckets.Params{Algorithm: a, Limit: 10, Window: window}
	}
	bucket := func(a buckets.Algorithm) buckets.Params {
		return buckets.Params{Algorithm: a, Limit: 10, Rate: buckets.PerSecond(1)}
	}
	for _, row := range []struct {
		params      buckets.Params
		most, least int64 // the bound, and what the greedy client gets at least
	}{
		{limit(buckets.FixedWindow), 20, 20},
		{limit(buckets.SlidingLog), 10, 10},
		{limit(buckets.SlidingCounter), 20, 19},
		{bucket(buckets.TokenBucket), 20, 19},
		{bucket(buckets.LeakyBucket), 20, 19},
	} {
		worst := int64(0)
		for start := range int64(250) {
			worst = max(worst, greedy(t, row.params, window, start))
		}
		if worst > row.most || worst < row.least {
			t.Errorf("%s: %d in a window, want %d to %d", row.params.Algorithm, worst, row.least, row.most)
		}
	}
}

// greedy is a client that is quiet before a step, and from then on takes all that it can get. It
// returns the most that passed in any half-open window.
func greedy(t *testing.T, params buckets.Params, window time.Duration, start int64) int64 {
	now := int64(0)
	l, err := buckets.NewMemory(params, buckets.MemoryConfig{Clock: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	type passed struct{ at, n int64 }
	var history []passed
	for step := start; step < start+450; step++ {
		// Every tenth of a second, and the microsecond before: edges are where windows are weak.
		now = (step+2)/2*100_000 - step%2
		look, err := l.Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if look.Remaining == 0 {
			continue
		}
		if d, err := l.AllowN(t.Context(), "k", look.Remaining); err != nil || !d.Allowed {
			t.Fatalf("%s at %d: %d remain, and yet %+v, %v", params.Algorithm, now, look.Remaining, d, err)
		}
		history = append(history, passed{now, look.Remaining})
	}
	most := int64(0)
	for i, first := range history {
		sum := int64(0)
		for _, p := range history[i:] {
			if p.at < first.at+window.Microseconds() {
				sum += p.n
			}
		}
		most = max(most, sum)
	}
	return most
}
