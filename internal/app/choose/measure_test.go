package choose

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

// clients is how many clients a measurement has. That in docs/choosing.md was made with:
//
//	go test ./internal/app/choose -run TestStatePerClient -v -clients 1000000
var clients = flag.Int("clients", 2000, "clients of TestStatePerClient")

// measured are the algorithms, with the number of requests in each client's state.
var measured = []struct {
	params   buckets.Params
	requests int64
}{
	{buckets.Params{Algorithm: buckets.FixedWindow, Limit: 1000, Window: 24 * time.Hour}, 1},
	{buckets.Params{Algorithm: buckets.SlidingLog, Limit: 1000, Window: time.Hour}, 1},
	{buckets.Params{Algorithm: buckets.SlidingLog, Limit: 1000, Window: time.Hour}, 100},
	{buckets.Params{Algorithm: buckets.SlidingCounter, Limit: 1000, Window: time.Hour}, 1},
	{buckets.Params{Algorithm: buckets.TokenBucket, Limit: 1000, Rate: buckets.Rate{Events: 1, Period: time.Minute}}, 1},
	{buckets.Params{Algorithm: buckets.LeakyBucket, Limit: 1000, Rate: buckets.Rate{Events: 1, Period: time.Minute}}, 1},
}

// What a client costs, in the process and in Redis.
func TestStatePerClient(t *testing.T) {
	rdb := redistest.Start(t).Client()
	t.Logf("%d clients; bytes each: in memory as counted, as the heap grew; in Redis as used_memory grew, as MEMORY USAGE says", *clients)
	for _, m := range measured {
		n := *clients
		if m.requests > 1 {
			n /= int(m.requests)
		}
		counted, heap := inMemory(t, m.params, n, m.requests)
		used, usage := inRedis(t, rdb, m.params, n, m.requests)
		t.Logf("%-15s %3d each  %5d %5d  %5d %5d", m.params.Algorithm, m.requests, counted, heap, used, usage)
		if counted <= 0 || usage <= 0 {
			t.Errorf("%s: nothing was measured", m.params.Algorithm)
		}
	}
}

// client names a client as long as a UUID is.
func client(i int) string { return fmt.Sprintf("client-%029d", i) }

func inMemory(t *testing.T, params buckets.Params, n int, requests int64) (counted, heap int64) {
	before := heapInUse()
	now := time.Now().UnixMicro()
	// No two requests at one instant: a log would keep them together.
	l, err := buckets.NewMemory(params, buckets.MemoryConfig{MaxKeys: 2 * n, MaxBytes: 8 << 30, Clock: func() int64 { now++; return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range n {
		for range requests {
			if _, err := l.AllowN(t.Context(), client(i), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	grown := heapInUse() - before
	stats := l.Stats()
	if stats.Keys != int64(n) {
		t.Fatalf("%d keys, want %d", stats.Keys, n)
	}
	return stats.Bytes / int64(n), grown / int64(n)
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func inRedis(t *testing.T, rdb *redis.Client, params buckets.Params, n int, requests int64) (used, usage int64) {
	ctx := context.Background()
	if err := rdb.FlushAll(ctx).Err(); err != nil { // of our own Redis
		t.Fatal(err)
	}
	before := usedMemory(t, rdb)
	l, err := buckets.NewRedis(rdb, params, buckets.RedisConfig{})
	if err != nil {
		t.Fatal(err)
	}
	const askers = 64
	var all sync.WaitGroup
	for a := range askers {
		all.Go(func() {
			for i := a; i < n; i += askers {
				for range requests {
					if _, err := l.AllowN(ctx, client(i), 1); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	used = (usedMemory(t, rdb) - before) / int64(n)
	if usage, err = rdb.MemoryUsage(ctx, l.Key(client(0))).Result(); err != nil {
		t.Fatal(err)
	}
	return used, usage
}

func usedMemory(t *testing.T, rdb *redis.Client) int64 {
	info, err := rdb.InfoMap(context.Background(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	if _, err := fmt.Sscan(info["Memory"]["used_memory"], &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes
}
