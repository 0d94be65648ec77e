// Command queue measures the queue against its targets, and against plain asynq in the same run.
// Each figure is the median of several runs, interleaved with those of its peer; the ratios count,
// not the bare times.
//
//	cd bench && go run ./queue [-runs 5] [pace|idle|enqueue|drain|bytes|flood|quiet …]
//
// It starts a redis-server of its own on a free port.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/bench/internal/ownredis"
)

// bench is what every measurement is given.
type bench struct {
	runs int
	addr string
	rdb  *redis.Client
}

var measurements = []struct {
	name, what string
	run        func(context.Context, *bench) error
}{
	{"pace", "gap and rate error against a loop that only sleeps", pace},
	{"idle", "enqueue to start of an idle tenant's job", idle},
	{"enqueue", "enqueues a second against asynq", enqueue},
	{"drain", "jobs a second from enqueue to end against asynq, and round trips a job", drain},
	{"bytes", "Redis bytes of a waiting job against asynq", bytesPerJob},
	{"flood", "a tenant that floods its full bucket, and its neighbour", flood},
	{"quiet", "Redis commands a second of an idle daemon", quiet},
}

func main() {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	runs := flag.Int("runs", 5, "runs of each measurement")
	flag.Parse()
	want := map[string]bool{}
	for _, a := range flag.Args() {
		want[a] = true
	}
	ctx := context.Background()
	for _, m := range measurements {
		if len(want) > 0 && !want[m.name] {
			continue
		}
		fmt.Printf("\n## %s: %s\n\n", m.name, m.what)
		if err := ownredis.With(func(addr string, rdb *redis.Client) error {
			return m.run(ctx, &bench{*runs, addr, rdb})
		}); err != nil {
			fmt.Fprintln(os.Stderr, m.name+":", err)
			os.Exit(1)
		}
	}
}

func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64, DisableIdentity: true, ContextTimeoutEnabled: true})
}

// median of some values; it sorts them.
func median[T ~float64 | ~int64](v []T) T {
	sort.Slice(v, func(i, j int) bool { return v[i] < v[j] })
	return v[len(v)/2]
}

func quantile[T ~float64 | ~int64](v []T, q float64) T {
	s := append([]T(nil), v...)
	sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func us(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }
