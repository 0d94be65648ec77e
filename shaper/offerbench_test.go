package shaper

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// BenchmarkOffer measures offers one by one, from several callers that share round trips, each with
// a deadline of its own.
func BenchmarkOffer(b *testing.B) {
	rdb := redistest.Start(b).Client()
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			w := newWorld(b, rdb)
			spec := Spec{Tenant: "a", Type: "bench", Payload: make([]byte, 200)}
			w.set("a", Policy{Depth: 10_000_000})
			b.ReportAllocs()
			b.SetParallelism((callers + 1) / 2) // times GOMAXPROCS
			if callers == 1 {
				for b.Loop() {
					offerWithin(b, w.client, spec)
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					offerWithin(b, w.client, spec)
				}
			})
		})
	}
}

func offerWithin(b *testing.B, c *Client, spec Spec) {
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.Offer(ctx, spec); err != nil {
		b.Error(err)
	}
}
