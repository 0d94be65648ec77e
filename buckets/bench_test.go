package buckets

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// One key at a rate that always admits, so that each call does all the work.
func BenchmarkMemory(b *testing.B) {
	ctx := context.Background()
	for _, a := range Algorithms() {
		spec := Spec{Algorithm: a, Limit: MaxLimit}
		switch a {
		case TokenBucket, LeakyBucket:
			spec.Rate = PerSecond(MaxEvents)
		case SlidingLog:
			spec.Limit, spec.Window = 1000, time.Millisecond
		default:
			spec.Window = time.Minute
		}
		open := func(b *testing.B) *Memory {
			m, err := NewMemory(spec, MemoryConfig{})
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
