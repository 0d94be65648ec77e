package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper"
)

var payload = []byte(strings.Repeat("p", 200))

const fast = 1_000_000 // a rate that does not bind

// open returns a producer for an empty Redis in which each tenant has this rate and depth.
func open(ctx context.Context, b *bench, rate int64, depth int) (*jobshaper.Queue, error) {
	if err := b.rdb.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	queue, err := jobshaper.Open(b.rdb, "bench", jobshaper.Config{})
	if err != nil {
		return nil, err
	}
	p := jobshaper.Policy{Rate: jobshaper.PerSecond(rate), Depth: depth}
	return queue, queue.Admin().SetDownstream(ctx, jobshaper.DownstreamPolicy{Defaults: p})
}

// enqueue compares the enqueues of one goroutine, of eight goroutines, and of batches.
func enqueue(ctx context.Context, b *bench) error {
	const n = 8000
	var one, eight, batch, asynqOne, asynqEight []float64
	ac := asynq.NewClientFromRedisClient(b.rdb)
	for range b.runs {
		for _, par := range []int{1, 8} {
			c, err := open(ctx, b, 10, 1_000_000)
			if err != nil {
				return err
			}
			ours := perSecond(n, par, func() error {
				_, err := c.Enqueue(ctx, "t", asynq.NewTask("bench", payload))
				return err
			})
			if err := b.rdb.FlushAll(ctx).Err(); err != nil {
				return err
			}
			theirs := perSecond(n, par, func() error {
				_, err := ac.EnqueueContext(ctx, asynq.NewTask("bench", payload))
				return err
			})
			if par == 1 {
				one, asynqOne = append(one, ours), append(asynqOne, theirs)
			} else {
				eight, asynqEight = append(eight, ours), append(asynqEight, theirs)
			}
		}
		c, err := open(ctx, b, 10, 1_000_000)
		if err != nil {
			return err
		}
		specs := make([]jobshaper.Spec, n)
		for i := range specs {
			specs[i] = jobshaper.Spec{Type: "bench", Payload: payload}
		}
		begun := time.Now()
		for _, o := range c.OfferMany(ctx, specs) {
			if o.Err != nil {
				return o.Err
			}
		}
		batch = append(batch, n/time.Since(begun).Seconds())
	}
	fmt.Println("| | ours/s | asynq/s | ratio |")
	fmt.Println("| --- | --- | --- | --- |")
	a, e := median(asynqOne), median(asynqEight)
	fmt.Printf("| one goroutine | %.0f | %.0f | %.2f |\n", median(one), a, median(one)/a)
	fmt.Printf("| eight goroutines | %.0f | %.0f | %.2f |\n", median(eight), e, median(eight)/e)
	fmt.Printf("| one goroutine, batches | %.0f | %.0f | %.2f |\n", median(batch), a, median(batch)/a)
	return nil
}

func perSecond(n, par int, f func() error) float64 {
	begun := time.Now()
	var wg sync.WaitGroup
	for range par {
		wg.Go(func() {
			for range n / par {
				check(f())
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(begun).Seconds()
}

// drain compares the time from the start of the workers until the last of n jobs ended, with an
// empty handler at concurrency 32; and counts what each job cost.
func drain(ctx context.Context, b *bench) error {
	const n = 20_000
	var ours, theirs, ourCalls, theirCalls, ourTrips, theirTrips []float64
	for range b.runs {
		o, calls, trips, err := drainOurs(ctx, b, n)
		if err != nil {
			return err
		}
		ours, ourCalls, ourTrips = append(ours, o), append(ourCalls, calls), append(ourTrips, trips)
		t, calls, trips, err := drainAsynq(ctx, b, n)
		if err != nil {
			return err
		}
		theirs, theirCalls, theirTrips = append(theirs, t), append(theirCalls, calls), append(theirTrips, trips)
	}
	fmt.Println("| | ours | plain asynq | ratio |")
	fmt.Println("| --- | --- | --- | --- |")
	fmt.Printf("| jobs/s | %.0f | %.0f | %.2f |\n", median(ours), median(theirs), median(ours)/median(theirs))
	// enqueue is one round trip on both sides
	fmt.Printf("| round trips a job, enqueue to end | %.2f | %.2f | %.2f |\n", 1+median(ourTrips), 1+median(theirTrips), (1+median(ourTrips))/(1+median(theirTrips)))
	fmt.Printf("| Redis calls a job, enqueue excluded | %.1f | %.1f | %.2f |\n", median(ourCalls), median(theirCalls), median(ourCalls)/median(theirCalls))
	return nil
}

func drainOurs(ctx context.Context, b *bench, n int) (rate, calls, trips float64, err error) {
	c, err := open(ctx, b, fast, n)
	if err != nil {
		return 0, 0, 0, err
	}
	specs := make([]jobshaper.Spec, n)
	for i := range specs {
		specs[i] = jobshaper.Spec{Type: "bench", Payload: payload}
	}
	for _, o := range c.OfferMany(ctx, specs) {
		if o.Err != nil {
			return 0, 0, 0, o.Err
		}
	}
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	h := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	})
	q, err := jobshaper.Open(b.rdb, "bench", jobshaper.Config{Handler: h, Concurrency: 32})
	if err != nil {
		return 0, 0, 0, err
	}
	before := counted(ctx, b.rdb)
	begun := time.Now()
	check(q.Start(ctx))
	<-done
	took := time.Since(begun)
	after := counted(ctx, b.rdb)
	q.Stop()
	return float64(n) / took.Seconds(), (after.calls - before.calls) / float64(n), (after.trips - before.trips) / float64(n), nil
}

func drainAsynq(ctx context.Context, b *bench, n int) (rate, calls, trips float64, err error) {
	if err := b.rdb.FlushAll(ctx).Err(); err != nil {
		return 0, 0, 0, err
	}
	ac := asynq.NewClientFromRedisClient(b.rdb)
	perSecond(n, 8, func() error {
		_, err := ac.EnqueueContext(ctx, asynq.NewTask("bench", payload))
		return err
	})
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	srv := asynq.NewServerFromRedisClient(b.rdb, asynq.Config{Concurrency: 32, LogLevel: asynq.ErrorLevel})
	before := counted(ctx, b.rdb)
	begun := time.Now()
	check(srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	})))
	<-done
	took := time.Since(begun)
	after := counted(ctx, b.rdb)
	srv.Shutdown()
	return float64(n) / took.Seconds(), (after.calls - before.calls) / float64(n), (after.trips - before.trips) / float64(n), nil
}

type counts struct{ calls, trips float64 }

// counted reads how many commands Redis ran, and how many of them clients sent (evalsha and those
// that no script runs): without pipelines that is the number of round trips.
func counted(ctx context.Context, rdb *redis.Client) counts {
	info, err := rdb.InfoMap(ctx, "commandstats").Result()
	check(err)
	var c counts
	for name, line := range info["Commandstats"] {
		calls, _, _ := strings.Cut(strings.TrimPrefix(line, "calls="), ",")
		n, _ := strconv.ParseFloat(calls, 64)
		c.calls += n
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			c.trips += n
		}
	}
	return c
}

// idle measures the time from before an enqueue until the first instruction of the handler, for a
// tenant that was idle.
func idle(ctx context.Context, b *bench) error {
	c, err := open(ctx, b, 10, 100)
	if err != nil {
		return err
	}
	p, err := spawn(childConfig{Kind: "daemon", Addr: b.addr, Concurrency: 10})
	if err != nil {
		return err
	}
	<-p.ready
	time.Sleep(2 * time.Second) // past the wait after Redis' own start
	var enq []int64
	for range 20 * b.runs {
		enq = append(enq, monotonic())
		if _, err := c.Enqueue(ctx, "t", asynq.NewTask("bench", payload)); err != nil {
			return err
		}
		time.Sleep(230 * time.Millisecond) // the tenant is idle again
	}
	starts := p.end()
	if len(starts) != len(enq) {
		return fmt.Errorf("%d starts, want %d", len(starts), len(enq))
	}
	ms := make([]float64, len(starts))
	for i := range starts {
		ms[i] = float64(starts[i]-enq[i]) / 1e6
	}
	fmt.Printf("p50 %.2f ms, p90 %.2f ms, p99 %.2f ms of %d\n", quantile(ms, .5), quantile(ms, .9), quantile(ms, .99), len(ms))
	return nil
}

// bytesPerJob compares what a waiting job of 200 bytes takes in Redis.
func bytesPerJob(ctx context.Context, b *bench) error {
	const n = 20_000
	used := func() float64 {
		info, err := b.rdb.InfoMap(ctx, "memory").Result()
		check(err)
		v, _ := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
		return v
	}
	c, err := open(ctx, b, 10, n)
	if err != nil {
		return err
	}
	before := used()
	specs := make([]jobshaper.Spec, n)
	for i := range specs {
		specs[i] = jobshaper.Spec{Type: "bench", Payload: payload}
	}
	for _, o := range c.OfferMany(ctx, specs) {
		if o.Err != nil {
			return o.Err
		}
	}
	ours := (used() - before) / n
	if err := b.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	before = used()
	ac := asynq.NewClientFromRedisClient(b.rdb)
	for range n {
		if _, err := ac.EnqueueContext(ctx, asynq.NewTask("bench", payload)); err != nil {
			return err
		}
	}
	theirs := (used() - before) / n
	fmt.Printf("ours %.0f bytes, asynq %.0f bytes, ratio %.2f\n", ours, theirs, ours/theirs)
	return nil
}

// quiet counts the commands that an idle daemon sends to Redis, with few and with many known
// tenants.
func quiet(ctx context.Context, b *bench) error {
	for _, tenants := range []int{0, 100_000} {
		if _, err := open(ctx, b, 10, 100); err != nil {
			return err
		}
		for i := 0; i < tenants; i += 1000 {
			pipe := b.rdb.Pipeline()
			for j := i; j < i+1000; j++ {
				name := "t" + strconv.Itoa(j)
				pipe.HSet(ctx, "shaper:{bench}:t:"+name, "ver", "1", "p:rate", "10/1000000")
				pipe.ZAdd(ctx, "shaper:{bench}:tenants", redis.Z{Score: float64(time.Now().UnixMicro()), Member: name})
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
		}
		p, err := spawn(childConfig{Kind: "daemon", Addr: b.addr, Concurrency: 10})
		if err != nil {
			return err
		}
		<-p.ready
		time.Sleep(time.Second)
		processed := func() float64 {
			info, err := b.rdb.InfoMap(ctx, "stats").Result()
			check(err)
			v, _ := strconv.ParseFloat(info["Stats"]["total_commands_processed"], 64)
			return v
		}
		before := processed()
		time.Sleep(10 * time.Second)
		perSec := (processed() - before - 1) / 10
		p.end()
		fmt.Printf("%d known tenants: %.1f commands/s (those inside scripts included)\n", tenants, perSec)
	}
	return nil
}
