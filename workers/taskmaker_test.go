package workers

import (
	"context"
	"fmt"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/shaper"
)

// BenchmarkTaskMaker is what a start costs for asynq's context and task.
func BenchmarkTaskMaker(b *testing.B) {
	for _, size := range []int{200, 100_000} {
		b.Run(fmt.Sprint(size, " bytes"), func(b *testing.B) {
			m, err := newTaskMaker(b.Context(), 32)
			if err != nil {
				b.Fatal(err)
			}
			defer m.close()
			g := &shaper.Grant{Type: "work", Payload: make([]byte, size), Charged: 1, MaxAttempts: 5}
			g.Tenant, g.ID = "tenant", "id"
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if err := m.run(ctx, ctx, g, func(context.Context, *asynq.Task) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
