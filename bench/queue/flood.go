package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jobshaper/jobshaper"
)

// flood measures what a tenant that offers without end into its full bucket costs Redis, and what
// it costs its neighbour: how many of the neighbour's starts at 10/s happen within 8 s, alone and
// beside the flood.
func flood(ctx context.Context, b *bench) error {
	offers, err := jobshaper.Open(b.rdb, "bench", jobshaper.Config{})
	if err != nil {
		return err
	}
	if err := offers.Admin().SetTenant(ctx, "neighbour", jobshaper.Policy{Rate: jobshaper.PerSecond(10)}); err != nil {
		return err
	}
	if err := fill(ctx, offers); err != nil {
		return err
	}
	var refused, accepted []float64
	for range b.runs {
		n, err := refusal(ctx, b, offers)
		if err != nil {
			return err
		}
		refused = append(refused, n)
		if n, err = acceptance(ctx, b, offers); err != nil {
			return err
		}
		accepted = append(accepted, n)
	}
	fmt.Printf("Redis µs a refusal in a batch of 100: %.1f; an acceptance in such a batch: %.1f (medians of %d)\n\n",
		median(refused), median(accepted), b.runs)

	daemon, err := spawn(childConfig{Kind: "daemon", Addr: b.addr, Concurrency: 10})
	if err != nil {
		return err
	}
	<-daemon.ready
	rows := []struct {
		name  string
		flood func(context.Context) int // returns how many it offered
	}{
		{"alone", func(ctx context.Context) int { <-ctx.Done(); return 0 }},
		{"beside one goroutine that offers batches of 100", func(ctx context.Context) int { return floodBatches(ctx, offers) }},
		{"beside 8 goroutines that offer one by one", func(ctx context.Context) int { return floodSingles(ctx, offers) }},
	}
	began, offered := make([][]int64, len(rows)), make([][]float64, len(rows))
	for range b.runs {
		for i, row := range rows {
			from, n, err := beside(ctx, offers, row.flood)
			if err != nil {
				return err
			}
			began[i], offered[i] = append(began[i], from), append(offered[i], float64(n))
		}
	}
	all := daemon.end()
	fmt.Println("| the neighbour at 10/s | starts in 8 s | offers refused a second |\n| --- | --- | --- |")
	for i, row := range rows {
		var starts []int64
		for _, from := range began[i] {
			starts = append(starts, within(all, from, from+int64(flooding)))
		}
		fmt.Printf("| %s | %d | %.0f |\n", row.name, median(starts), median(offered[i])/flooding.Seconds())
	}
	return nil
}

const flooding = 8 * time.Second

func within(starts []int64, from, to int64) (n int64) {
	for _, at := range starts {
		if from <= at && at < to {
			n++
		}
	}
	return n
}

// fill fills the bucket of the tenant that floods, which is paused: it has no starts of its own.
func fill(ctx context.Context, offers *jobshaper.Queue) error {
	if err := offers.Admin().SetTenant(ctx, "flood", jobshaper.Policy{Depth: 1000}); err != nil {
		return err
	}
	if err := offers.Admin().Pause(ctx, "flood", 0); err != nil {
		return err
	}
	offers.OfferMany(ctx, specs("flood", 1000))
	return nil
}

func specs(tenant string, n int) []jobshaper.Spec {
	l := make([]jobshaper.Spec, n)
	for i := range l {
		l[i] = jobshaper.Spec{Tenant: tenant, Type: "bench", Payload: make([]byte, 200)}
	}
	return l
}

// scriptMicros is how much time Redis has spent in scripts, in µs.
func scriptMicros(ctx context.Context, b *bench) (float64, error) {
	info, err := b.rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "cmdstat_evalsha:")
	_, rest, _ = strings.Cut(rest, "usec=")
	text, _, _ := strings.Cut(rest, ",")
	return strconv.ParseFloat(text, 64)
}

// cost is the Redis time for each of the n jobs that offer offers.
func cost(ctx context.Context, b *bench, n int, offer func()) (float64, error) {
	before, err := scriptMicros(ctx, b)
	if err != nil {
		return 0, err
	}
	offer()
	after, err := scriptMicros(ctx, b)
	return (after - before) / float64(n), err
}

const costCalls = 100

func refusal(ctx context.Context, b *bench, offers *jobshaper.Queue) (float64, error) {
	l := specs("flood", 100)
	return cost(ctx, b, 100*costCalls, func() {
		for range costCalls {
			offers.OfferMany(ctx, l)
		}
	})
}

func acceptance(ctx context.Context, b *bench, offers *jobshaper.Queue) (float64, error) {
	if err := offers.Admin().SetTenant(ctx, "taken", jobshaper.Policy{Depth: 1_000_000}); err != nil {
		return 0, err
	}
	l := specs("taken", 100)
	us, err := cost(ctx, b, 100*costCalls, func() {
		for range costCalls {
			offers.OfferMany(ctx, l)
		}
	})
	if err != nil {
		return 0, err
	}
	_, err = offers.Admin().Purge(ctx, "taken")
	return us, err
}

// beside gives the neighbour more jobs than it can start, floods for a while, and returns since
// when and with how many jobs.
func beside(ctx context.Context, offers *jobshaper.Queue, flood func(context.Context) int) (from int64, n int, err error) {
	for _, o := range offers.OfferMany(ctx, specs("neighbour", 10*int(flooding.Seconds())+5)) {
		if o.Err != nil {
			return 0, 0, o.Err
		}
	}
	time.Sleep(200 * time.Millisecond) // until jobs flow; those left from the run before only lengthen the backlog
	ctx, stop := context.WithTimeout(ctx, flooding)
	defer stop()
	from = monotonic()
	return from, flood(ctx), nil
}

func floodBatches(ctx context.Context, offers *jobshaper.Queue) (n int) {
	for l := specs("flood", 100); ctx.Err() == nil; n += len(l) {
		offers.OfferMany(ctx, l)
	}
	return n
}

func floodSingles(ctx context.Context, offers *jobshaper.Queue) int {
	var all sync.WaitGroup
	counts := make([]int, 8)
	for i := range counts {
		all.Go(func() {
			for s := specs("flood", 1)[0]; ctx.Err() == nil; counts[i]++ {
				_, _ = offers.Offer(ctx, s) // it is refused, or the time is over
			}
		})
	}
	all.Wait()
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
