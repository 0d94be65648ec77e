package workers

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/test/faultproxy"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

// BenchmarkFill has a pool that is far from Redis fill with jobs which run for long, and tells how
// long that takes, how many tickets asynq had at most, and how many were lost. The scheduler is as
// far away, or beside Redis, as where each daemon has one and some are near. Run it with -benchtime
// 1x.
func BenchmarkFill(b *testing.B) {
	for _, places := range []int{1000, 3000} {
		for _, tenants := range []int{1, 5} {
			for _, scheduler := range []string{"far", "near"} {
				for _, away := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond} {
					b.Run(fmt.Sprintf("%d_places/%d_tenants/%v/scheduler_%s", places, tenants, away, scheduler), func(b *testing.B) {
						for b.Loop() {
							fill(b, places, tenants, away, scheduler == "near")
						}
					})
				}
			}
		}
	}
}

func fill(b *testing.B, places, tenants int, away time.Duration, near bool) {
	server := redistest.Start(b)
	proxy, err := faultproxy.Start(server.Addr())
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	must(err)
	defer proxy.Close()
	proxy.Delay(away)
	here := server.Client()
	there := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 1000, ContextTimeoutEnabled: true})
	defer there.Close()
	admin, err := shaper.NewAdmin(here, "d")
	must(err)
	must(admin.SetDownstream(b.Context(), shaper.DownstreamPolicy{Defaults: shaper.Policy{
		Rate: buckets.PerSecond(100_000), Depth: 100_000, MaxInFlight: 100_000, Timeout: time.Hour}}))
	client, err := shaper.NewClient(here, "d", shaper.ClientConfig{})
	must(err)
	var specs []shaper.Spec
	for i := range 2 * places {
		specs = append(specs, shaper.Spec{Tenant: fmt.Sprint("t", i%tenants), Type: "x"})
	}
	for _, o := range client.OfferMany(b.Context(), specs) {
		must(o.Err)
	}

	var running atomic.Int64
	end, full := make(chan struct{}), make(chan struct{})
	quiet := slog.New(slog.DiscardHandler)
	pool, err := New(there, "d", asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if running.Add(1) == int64(places) {
			close(full)
		}
		<-end
		return nil
	}), Config{Concurrency: places, ChainFor: -1, Logger: quiet})
	must(err)
	from := there
	if near {
		from = here
	}
	dispatcher, err := NewDispatcher(from, "d", pool.Ring)
	must(err)
	scheduler, err := shaper.NewScheduler(from, "d", dispatcher, shaper.SchedulerConfig{Logger: quiet})
	must(err)
	begun, most, tooLong := time.Now(), int64(0), time.After(5*time.Minute)
	must(pool.Start(b.Context()))
	must(scheduler.Start(b.Context()))
	for look := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-look.C:
			most = max(most, here.LLen(b.Context(), "asynq:{shaper-d}:pending").Val())
			continue
		case <-full:
		case <-tooLong:
			b.Errorf("%d of %d places are filled", running.Load(), places)
		}
		look.Stop()
		break
	}
	b.ReportMetric(time.Since(begun).Seconds(), "s/fill")
	lost, _ := strconv.Atoi(here.HGet(b.Context(), "shaper:{d}:d", "lost_tickets").Val())
	b.ReportMetric(float64(most), "waiting-at-most")
	b.ReportMetric(float64(lost), "lost")
	scheduler.Stop()
	close(end)
	pool.Stop()
}
