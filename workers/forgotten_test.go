package workers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/jobshaper/jobshaper/shaper"
)

// TestForgottenPoolSetsPoliciesFirst flushes Redis. The pool notices, and is not known there again
// before its policies are, even if setting them fails at first; it counts one loss.
func TestForgottenPoolSetsPoliciesFirst(t *testing.T) {
	t.Parallel()
	m, err := NewMetrics(prometheus.NewRegistry(), "d")
	if err != nil {
		t.Fatal(err)
	}
	var b *bench
	var calls atomic.Int64
	known := func() bool { return b.rdb.HExists(context.Background(), "shaper:{d}:pools", b.pool.ID()).Val() }
	b = newBench(t, func(context.Context, *asynq.Task) error { return nil }, Config{Metrics: m, Forgotten: func(ctx context.Context) error {
		if known() {
			t.Error("the pool is known before its policies are")
		}
		if calls.Add(1) == 1 {
			return errors.New("not yet")
		}
		return b.admin.SetDownstream(ctx, shaper.DownstreamPolicy{Lease: time.Second})
	}})
	// The pool beats three times a lease.
	b.must(b.admin.SetDownstream(t.Context(), shaper.DownstreamPolicy{Lease: time.Second}))
	b.start()
	before := b.rdb.HGet(t.Context(), "shaper:{d}:pools", b.pool.ID()).Val()
	until(t, "it beats", func() bool { return b.rdb.HGet(t.Context(), "shaper:{d}:pools", b.pool.ID()).Val() != before })
	if n := calls.Load(); n != 0 {
		t.Fatalf("told %d times that Redis forgot, and it did not", n)
	}
	b.must(b.rdb.FlushAll(t.Context()).Err())
	until(t, "the policies are set", func() bool { return calls.Load() == 2 })
	until(t, "the pool is known", known)
	if n := testutil.ToFloat64(m.forgotten); n != 1 {
		t.Errorf("%v losses counted, want 1", n)
	}
	job := b.wait("a", b.offer("a", 1))
	if n := calls.Load(); job.State != shaper.StateDone || n != 2 {
		t.Errorf("job is %s, and told %d times that Redis forgot; want done, and twice, since the first failed", job.State, n)
	}
}
