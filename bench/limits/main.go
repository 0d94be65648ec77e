// Command limits measures the admission checks against their peers: in memory
// golang.org/x/time/rate and go.uber.org/ratelimit, in Redis redis_rate and throttled. Within each
// round the peers are measured in turn, and the ratio of each round counts, so a machine whose
// speed drifts does little harm. What is printed is medians.
//
//	cd bench && go run ./limits [-rounds 21]
//
// It starts a redis-server of its own on a free port.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/jobshaper/jobshaper/bench/internal/ownredis"
	"github.com/jobshaper/jobshaper/buckets"
)

// peer is one way to ask a limit; ask is called with the numbers of the goroutine and of the call.
type peer struct {
	name string
	ask  func(g, i int)
}

func main() {
	rounds := flag.Int("rounds", 21, "rounds; the medians are printed")
	flag.Parse()
	check(memory(*rounds))
	check(ownredis.With(func(addr string, rdb *redis.Client) error { return inRedis(*rounds, rdb) }))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(1)
	}
}

func memory(rounds int) error {
	ctx := context.Background()
	params := buckets.Params{Algorithm: buckets.TokenBucket, Limit: 1_000_000_000, Rate: buckets.PerSecond(1_000_000_000)}
	ours, err := buckets.NewMemory(params, buckets.MemoryConfig{})
	if err != nil {
		return err
	}
	defer ours.Close()
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = "key" + strconv.Itoa(i)
	}
	xtime := rate.NewLimiter(1e9, 1_000_000_000)
	uber := ratelimit.New(1_000_000_000)
	var mu sync.Mutex
	xmany := map[string]*rate.Limiter{}
	one := []peer{
		{"ours", func(_, _ int) { _, _ = ours.Allow(ctx, "key") }},
		{"x/time/rate", func(_, _ int) { xtime.Allow() }},
		{"uber ratelimit", func(_, _ int) { uber.Take() }},
	}
	many := []peer{
		{"ours", func(g, i int) { _, _ = ours.Allow(ctx, keys[(i*31+g*977)%len(keys)]) }},
		{"x/time/rate in a locked map", func(g, i int) {
			k := keys[(i*31+g*977)%len(keys)]
			mu.Lock()
			l := xmany[k]
			if l == nil {
				l = rate.NewLimiter(1e9, 1_000_000_000)
				xmany[k] = l
			}
			mu.Unlock()
			l.Allow()
		}},
	}
	allocs := testing.AllocsPerRun(1000, func() { _, _ = ours.Allow(ctx, "key") })
	fmt.Printf("## in memory, ns a check; ours allocates %.0f times\n\n", allocs)
	for _, c := range []struct {
		what  string
		peers []peer
		par   int
	}{{"1 key", one, 1}, {"1 key, 8 goroutines", one, 8}, {"10 000 keys", many, 1}, {"10 000 keys, 8 goroutines", many, 8}} {
		compare(c.what, c.peers, rounds, c.par, 400_000, "ns")
	}
	return nil
}

func inRedis(rounds int, rdb *redis.Client) error {
	ctx := context.Background()
	params := buckets.Params{Algorithm: buckets.TokenBucket, Limit: 1_000_000, Rate: buckets.PerSecond(1_000_000)}
	ours, err := buckets.NewRedis(rdb, params, buckets.RedisConfig{})
	if err != nil {
		return err
	}
	rr := redis_rate.NewLimiter(rdb)
	limit := redis_rate.PerSecond(1_000_000)
	store, err := throttledredis.NewCtx(rdb, "throttled:")
	if err != nil {
		return err
	}
	th, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(1_000_000), MaxBurst: 1_000_000})
	if err != nil {
		return err
	}
	fmt.Println("\n## in Redis, µs a check")
	fmt.Println()
	peers := []peer{
		{"ours", func(g, _ int) { _, err := ours.Allow(ctx, "key"+strconv.Itoa(g)); check(err) }},
		{"redis_rate", func(g, _ int) { _, err := rr.Allow(ctx, "key"+strconv.Itoa(g), limit); check(err) }},
		{"throttled", func(g, _ int) { _, _, err := th.RateLimitCtx(ctx, "key"+strconv.Itoa(g), 1); check(err) }},
	}
	compare("1 goroutine", peers, rounds, 1, 2000, "us")
	compare("32 goroutines, a key each", peers, rounds, 32, 6400, "us")
	return nil
}

// compare prints the median cost of a call to each peer, and the median of the rounds' ratios to
// the first peer.
func compare(what string, peers []peer, rounds, par, calls int, unit string) {
	cost := make([][]float64, len(peers))
	ratio := make([][]float64, len(peers))
	for range rounds {
		for p := range peers {
			cost[p] = append(cost[p], perCall(peers[p].ask, par, calls))
		}
		for p := range peers {
			n := len(cost[p]) - 1
			ratio[p] = append(ratio[p], cost[0][n]/cost[p][n])
		}
	}
	scale := map[string]float64{"ns": 1, "us": 1e-3}[unit]
	for p := range peers {
		fmt.Printf("%-28s %-28s %8.1f %s   ours/it %.2f\n", what, peers[p].name, median(cost[p])*scale, unit, median(ratio[p]))
	}
}

// perCall is the wall time of all calls divided by their number, in ns.
func perCall(ask func(g, i int), par, calls int) float64 {
	begun := time.Now()
	var wg sync.WaitGroup
	for g := range par {
		wg.Go(func() {
			for i := range calls / par {
				ask(g, i)
			}
		})
	}
	wg.Wait()
	return float64(time.Since(begun)) / float64(calls)
}

func median(v []float64) float64 {
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	return s[len(s)/2]
}
