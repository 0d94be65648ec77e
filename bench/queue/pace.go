package main

import (
	"context"
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/jobshaper/jobshaper"
)

// pace enqueues a backlog, and compares the gaps between starts with those of a loop that does
// nothing but sleep until start + k × interval.
func pace(ctx context.Context, b *bench) error {
	fmt.Println("| rate | daemons | gap error p99 | reference p99 | ratio | time.Sleep p99 | rate error | min gap | most in 1 s |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, rate := range []int64{10, 100, 1000} {
		n := int(rate * 20) // 20 s
		interval := time.Duration(int64(time.Second) / rate)
		for _, daemons := range []int{1, 3} {
			var ours, ref, plain, rateErr []float64
			minGap, most := math.MaxFloat64, 0
			for range b.runs {
				starts, err := paced(ctx, b, rate, daemons, n)
				if err != nil {
					return err
				}
				g := gaps(starts)
				ours = append(ours, gapError(g, interval))
				for _, v := range g {
					minGap = math.Min(minGap, v)
				}
				most = max(most, densest(starts, time.Second))
				took := float64(starts[len(starts)-1]-starts[0]) / 1e9
				rateErr = append(rateErr, math.Abs(took*float64(rate)/float64(n-1)-1))
				one, other, err := loops(interval, n)
				if err != nil {
					return err
				}
				ref, plain = append(ref, gapError(gaps(one), interval)), append(plain, gapError(gaps(other), interval))
			}
			o, r := median(ours), median(ref)
			fmt.Printf("| %d/s | %d | %.2f ms | %.2f ms | %.2f | %.2f ms | %.3f %% | %.2f ms | %d |\n",
				rate, daemons, o, r, o/r, median(plain), 100*median(rateErr), minGap, most)
		}
	}
	return nil
}

// loops returns when two loops that only sleep woke up: the reference, which asks the kernel to
// sleep, and one with time.Sleep. They run at the same time, each in a process of its own, and cost
// next to nothing.
func loops(interval time.Duration, n int) (reference, sleep []int64, err error) {
	var ps []*process
	for _, kind := range []string{"reference", "sleep"} {
		p, err := spawn(childConfig{Kind: kind, Interval: interval, N: n})
		if err != nil {
			return nil, nil, err
		}
		ps = append(ps, p)
	}
	for _, p := range ps {
		<-p.done
		if err := p.cmd.Wait(); err != nil {
			return nil, nil, err
		}
	}
	return ps[0].starts, ps[1].starts, nil
}

func paced(ctx context.Context, b *bench, rate int64, daemons, n int) ([]int64, error) {
	c, err := open(ctx, b, rate, 100_000)
	if err != nil {
		return nil, err
	}
	specs := make([]jobshaper.Spec, n)
	for i := range specs {
		specs[i] = jobshaper.Spec{Type: "bench", Payload: []byte("x")}
	}
	for _, o := range c.OfferMany(ctx, specs) {
		if o.Err != nil || o.Result.Status != jobshaper.Accepted {
			return nil, fmt.Errorf("offer: %+v", o)
		}
	}
	var ps []*process
	for range daemons {
		p, err := spawn(childConfig{Kind: "daemon", Addr: b.addr, Concurrency: 16})
		if err != nil {
			return nil, err
		}
		ps = append(ps, p)
	}
	for {
		st, err := c.Admin().Stats(ctx, true)
		if err != nil {
			return nil, err
		}
		if int(st.Counters.Done) == n {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	var all []int64
	for _, p := range ps {
		all = append(all, p.end()...)
	}
	if len(all) != n {
		return nil, fmt.Errorf("%d starts, want %d", len(all), n)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all, nil
}

// gaps returns the gaps between instants, in ms.
func gaps(at []int64) []float64 {
	var g []float64
	for i := 1; i < len(at); i++ {
		g = append(g, float64(at[i]-at[i-1])/1e6)
	}
	return g
}

func gapError(gaps []float64, interval time.Duration) float64 {
	e := make([]float64, len(gaps))
	for i, g := range gaps {
		e[i] = math.Abs(g - float64(interval)/1e6)
	}
	return quantile(e, .99)
}

// densest is the most instants in any window of length w.
func densest(at []int64, w time.Duration) int {
	most, i := 0, 0
	for j := range at {
		for at[j]-at[i] >= int64(w) {
			i++
		}
		most = max(most, j-i+1)
	}
	return most
}
