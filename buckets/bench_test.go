package buckets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// One key at a rate that always admits, so that each call does all the work.
func BenchmarkMemory(b *testing.B) {
	ctx := context.Background()
	for _, a := range Algorithms() {
		params := Params{Algorithm: a, Limit: MaxLimit}
		switch a {
		case TokenBucket, LeakyBucket:
			params.Rate = PerSecond(MaxEvents)
		case SlidingLog:
			params.Limit, params.Window = 1000, time.Millisecond
		default:
			params.Window = time.Minute
		}
		open := func(b *testing.B) *Memory {
			m, err := NewMemory(params, MemoryConfig{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { m.Close() })
			b.ReportAllocs()
			return m
		}
		b.Run(string(a)+"/1 key", func(b *testing.B) {
			m := open(b)
			for b.Loop() {
				m.Allow(ctx, "198.51.100.7")
			}
		})
		keys := make([]string, 10_000)
		for i := range keys {
			keys[i] = fmt.Sprintf("tenant-%d", i)
		}
		b.Run(string(a)+"/10000 keys", func(b *testing.B) {
			m := open(b)
			for i := 0; b.Loop(); i++ {
				m.Allow(ctx, keys[i%len(keys)])
			}
		})
		b.Run(string(a)+"/10000 keys parallel", func(b *testing.B) {
			m := open(b)
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.IntN(len(keys)); pb.Next(); i++ {
					m.Allow(ctx, keys[i%len(keys)])
				}
			})
		})
	}
}

// What a sweep of a million expired keys adds to the calls that meet it: the 99.9th percentile of
// calls for known keys, next to that on a limiter with nothing to sweep.
func BenchmarkCallsWhileSwept(b *testing.B) {
	ctx := context.Background()
	for _, keys := range []int{0, 1_000_000} {
		b.Run(fmt.Sprint(keys, " expired"), func(b *testing.B) {
			var all []time.Duration
			for b.Loop() {
				b.StopTimer()
				var now atomic.Int64
				now.Store(t0)
				m, err := NewMemory(Params{Algorithm: TokenBucket, Limit: MaxLimit, Rate: PerSecond(MaxLimit)}, MemoryConfig{Clock: now.Load, MaxKeys: 2_000_000})
				if err != nil {
					b.Fatal(err)
				}
				for i := range keys {
					m.Allow(ctx, fmt.Sprint(i))
				}
				now.Add(3_600_000_000)
				b.StartTimer()
				swept := make(chan int)
				go func() { swept <- m.Sweep() }()
				for done, i := false, 0; !done || i < 100_000; i++ {
					begun := time.Now()
					m.Allow(ctx, "198.51.100.7")
					all = append(all, time.Since(begun))
					select {
					case <-swept:
						done = true
					default:
					}
				}
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)*999/1000].Nanoseconds()), "p99.9-ns")
			b.ReportMetric(float64(all[len(all)-1].Nanoseconds()), "max-ns")
		})
	}
}
