package buckets

import (
	"errors"
	"math"
	"testing"
	"time"
)

// What a script answers is not trusted to be well formed: a decision is within its limit, or there
// is an error.
func FuzzDecode(f *testing.F) {
	for _, v := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1e15} {
		f.Add(v, int64(1), v, v, int64(1), uint8(3), false)
		f.Add(int64(1), v, int64(0), int64(5), int64(3), uint8(4), false)
		f.Add(v, v, v, v, int64(100), uint8(4), true)
	}
	f.Fuzz(func(t *testing.T, a, b, c, d, n int64, length uint8, text bool) {
		n = max(n, 0) // of ours
		for _, params := range []Params{
			{Algorithm: FixedWindow, Limit: 5, Window: time.Minute}, {Algorithm: SlidingLog, Limit: 5, Window: time.Minute},
			{Algorithm: SlidingCounter, Limit: 5, Window: time.Minute}, {Algorithm: TokenBucket, Limit: 5, Rate: PerSecond(7)},
			{Algorithm: LeakyBucket, Limit: 5, Rate: PerSecond(7)},
		} {
			l, err := NewInScript(params)
			if err != nil {
				t.Fatal(err)
			}
			row := []any{a, b, c, d, "x", nil}[:min(length, 6)]
			if text && len(row) > 0 {
				row[0] = "1"
			}
			got, err := l.Decode(row, n)
			if err != nil && !errors.Is(err, ErrStore) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrCost) {
				t.Errorf("%s: %v of %v", params.Algorithm, err, row)
			}
			if err == nil && (got.Remaining < 0 || got.Remaining > 5 || got.RetryAfter < 0 || got.ResetAfter < 0) {
				t.Errorf("%s: %v for %d reads as %+v", params.Algorithm, row, n, got)
			}
		}
	})
}
