package buckets

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// BenchmarkRedis measures one key at a rate that always admits, asked by several callers that share
// round trips, each with a deadline of its own.
func BenchmarkRedis(b *testing.B) {
	rdb := redistest.Start(b).Client()
	ask := func(b *testing.B, l *Redis) {
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
		defer cancel()
		if _, err := l.Allow(ctx, "198.51.100.7"); err != nil {
			b.Error(err)
		}
	}
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			l := onServerTime(b, rdb, Params{Algorithm: TokenBucket, Limit: 1_000_000, Rate: PerSecond(1_000_000)})
			b.ReportAllocs()
			b.SetParallelism((callers + 1) / 2) // times GOMAXPROCS
			if callers == 1 {
				for b.Loop() {
					ask(b, l)
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ask(b, l)
				}
			})
		})
	}
}
