package policing

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/jobshaper/jobshaper/buckets"
)

// In any span of time all nodes together admit at most nodes × lease more than the
// limiter they lease from could have, and over all time no more than it gave.
func TestHybridBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := t0
		clock := func() int64 { return now }
		rule := smallRule(t, 0)
		rule.Params.Limit += 5
		lender := newMemory(t, rule.Params, clock)
		lease := rapid.Int64Range(1, 5).Draw(t, "lease")
		count := rapid.IntRange(1, 4).Draw(t, "nodes")
		var given int64
		spy := &lenderSpy{Memory: lender, given: &given}
		var nodes []*Hybrid
		for range count {
			h, err := NewHybrid(spy, HybridConfig{Lease: lease, Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, h)
		}
		type event struct{ at, n int64 }
		var admitted []event
		var sum int64
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += rapid.Int64Range(0, 700_000).Draw(t, "later")
			n := rapid.Int64Range(1, 3).Draw(t, "n")
			node := nodes[rapid.IntRange(0, count-1).Draw(t, "node")]
			d, err := node.AllowN(context.Background(), "k", n)
			if err != nil {
				t.Fatal(err)
			}
			if d.Remaining < 0 || d.Remaining > d.Limit || d.Allowed != (d.RetryAfter == 0) || d.RetryAfter < 0 || d.ResetAfter < 0 {
				t.Fatalf("%+v", d)
			}
			if d.Allowed {
				admitted = append(admitted, event{now, n})
				sum += n
			}
			if sum > given {
				t.Fatalf("%d admitted of %d given", sum, given)
			}
		}
		slack := int64(count) * lease
		for i, from := range admitted {
			var passed int64
			for _, to := range admitted[i:] {
				passed += to.n
				if most := mostIn(rule.Params, from.at, to.at) + slack; passed > most {
					t.Fatalf("%d passed from %d to %d, want at most %d", passed, from.at, to.at, most)
				}
			}
		}
	})
}

// mostIn is the most that a limiter admits from one instant to another, both included.
func mostIn(s buckets.Params, from, to int64) int64 {
	switch s.Algorithm {
	case buckets.TokenBucket, buckets.LeakyBucket:
		return s.Limit + (to-from)*s.Rate.Events/s.Rate.Period.Microseconds() + 1
	case buckets.SlidingLog:
		return s.Limit * (1 + (to-from)/s.Window.Microseconds())
	default:
		w := s.Window.Microseconds()
		return s.Limit * (1 + to/w - from/w)
	}
}

// lenderSpy counts what is given, and how often it is asked.
type lenderSpy struct {
	*buckets.Memory
	given *int64
	asked int
	err   error
}

func (s *lenderSpy) AllowN(ctx context.Context, key string, n int64) (buckets.Decision, error) {
	s.asked++
	if s.err != nil {
		return buckets.Decision{}, s.err
	}
	d, err := s.Memory.AllowN(ctx, key, n)
	if d.Allowed && s.given != nil {
		*s.given += n
	}
	return d, err
}
