package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

// roundsVar says how many rounds TestWhatSurvives measures; docs/durability.md is from five.
const roundsVar = "JOBSHAPER_DURABILITY_ROUNDS"

// With everysec, while the disk is still busy with the last second's data, Redis answers and puts
// writing off for up to 2 s. So a kill may lose something, if rarely.
//
// setting is a way to run Redis, and how producers use it.
type setting struct {
	name   string
	args   []string
	client shaper.ClientConfig

	restart, failover string // what may be lost: "nothing", "all", or "some"
}

var settings = []setting{
	{"AOF everysec", aof("everysec"), shaper.ClientConfig{}, "some", "some"},
	{"no persistence", nil, shaper.ClientConfig{}, "all", "some"},
	{"RDB only (save 1 1)", []string{"--save", "1 1"}, shaper.ClientConfig{}, "some", "some"},
	{"AOF always", aof("always"), shaper.ClientConfig{}, "nothing", "some"},
	{"AOF everysec, wait: 1", aof("everysec"), shaper.ClientConfig{Replicas: 1, ReplicaTimeout: 10 * time.Second}, "some", "nothing"},
	{"AOF everysec, min-replicas-to-write 1", append(aof("everysec"), "--min-replicas-to-write", "1"), shaper.ClientConfig{}, "some", "some"},
}

func aof(sync string) []string { return []string{"--appendonly", "yes", "--appendfsync", sync} }

// counts are what one round of a setting gave.
type counts struct{ accepted, lost int }

// TestWhatSurvives kills Redis under a load of producers, in each of the settings that operators
// choose from, and counts what was accepted and is gone: when the same server starts again, and
// when its replica takes over. It prints the table of docs/durability.md.
func TestWhatSurvives(t *testing.T) {
	if os.Getenv(storeVar) != "" {
		t.Skip("is about servers of its own")
	}
	rounds, load, turns := 1, 300*time.Millisecond, 2
	if n, err := strconv.Atoi(os.Getenv(roundsVar)); err == nil {
		rounds, load, turns = n, time.Second, 20*n
	} else if testing.Short() {
		t.Skip("starts two servers for each of six settings, twice")
	} else {
		t.Parallel()
	}
	restarted, failed := make([][]counts, len(settings)), make([][]counts, len(settings))
	for range rounds {
		for i, s := range settings {
			restarted[i] = append(restarted[i], s.survives(t, load, false))
			failed[i] = append(failed[i], s.survives(t, load, true))
		}
	}
	table := &strings.Builder{}
	costs := costs(t, turns)
	fmt.Fprintln(table, "| setting | kill −9 of Redis, same server again | failover to the replica | jobs accepted a second |\n| --- | --- | --- | --- |")
	for i, s := range settings {
		a, b := sum(restarted[i]), sum(failed[i])
		fmt.Fprintf(table, "| %s | %d of %d lost | %d of %d lost | %.2f |\n", s.name, a.lost, a.accepted, b.lost, b.accepted, float64(costs[i])/float64(costs[0]))
		s.judge(t, "restart", a, s.restart)
		s.judge(t, "failover", b, s.failover)
	}
	t.Logf("%d rounds of %v with 8 producers; the rate is relative to the first row, where %d were accepted\n%s", rounds, load, costs[0], table)
}

func (s setting) judge(t *testing.T, what string, c counts, may string) {
	t.Helper()
	switch {
	case c.accepted == 0:
		t.Errorf("%s: nothing was accepted", s.name)
	case may == "nothing" && c.lost > 0, may == "all" && c.lost < c.accepted:
		t.Errorf("%s, %s: %d of %d lost, want %s", s.name, what, c.lost, c.accepted, may)
	}
}

func sum(all []counts) (total counts) {
	for _, c := range all {
		total.accepted, total.lost = total.accepted+c.accepted, total.lost+c.lost
	}
	return total
}

// costs returns how many jobs eight producers had accepted in each setting in the same time, with a
// replica. The settings take turns in short slices, so that whatever else the machine does hits all
// alike.
func costs(t *testing.T, turns int) []int64 {
	t.Helper()
	const slice = 100 * time.Millisecond
	totals, clients := make([]int64, len(settings)), make([]*shaper.Client, len(settings))
	for i, s := range settings {
		primary := redistest.Start(t, redistest.Args(s.args...))
		redistest.StartReplica(t, primary, "", redistest.Args(s.args...))
		r := newRigAt(t, primary.URL())
		r.tenant("a", shaper.Policy{Depth: 10_000_000})
		var err error
		clients[i], err = shaper.NewClient(r.rdb, r.name, s.client)
		r.must(err)
	}
	for range turns {
		for i, client := range clients {
			var producers sync.WaitGroup
			var accepted atomic.Int64
			end := time.Now().Add(slice)
			for range 8 {
				producers.Go(func() {
					for first := true; first || time.Now().Before(end); first = false {
						if _, err := client.Offer(t.Context(), shaper.Spec{Tenant: "a", Type: "play", Payload: play{}.bytes()}); err != nil {
							t.Error(err)
							return
						}
						accepted.Add(1)
					}
				})
			}
			producers.Wait()
			totals[i] += accepted.Load()
		}
	}
	return totals
}

// survives offers jobs for a while, kills the primary in the middle of it, and counts what is gone
// afterwards.
func (s setting) survives(t *testing.T, load time.Duration, failover bool) counts {
	t.Helper()
	primary := redistest.Start(t, redistest.Args(s.args...))
	replica := redistest.StartReplica(t, primary, "", redistest.Args(s.args...))
	defer replica.Stop()
	r := newRigAt(t, primary.URL())
	r.tenant("a", shaper.Policy{Depth: 10_000_000})
	accepted := r.offerUntilGone(s.client, load, primary.Kill)
	left := primary
	if failover {
		left = replica
		replica.Promote()
	} else {
		primary.Restart()
	}
	defer left.Stop()
	client := left.Client()
	defer client.Close()
	var kept map[string]bool
	r.eventually("what is left has been read", func() bool {
		ids, err := client.HKeys(context.Background(), "shaper:{"+r.name+"}:j:a").Result()
		kept = map[string]bool{}
		for _, id := range ids {
			kept[id] = true
		}
		return err == nil
	})
	c := counts{accepted: len(accepted)}
	for _, id := range accepted {
		if !kept[id] {
			c.lost++
		}
	}
	return c
}

// offerUntilGone has eight producers offer jobs one by one until the store, which is ended after a
// while, is gone, and returns the ids of those that were accepted.
func (r *rig) offerUntilGone(opts shaper.ClientConfig, load time.Duration, end func()) (accepted []string) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rdb, err := redisurl.Open(r.url+"?max_retries=-1", redisurl.Config{})
	r.must(err)
	defer rdb.Close()
	client, err := shaper.NewClient(rdb, r.name, opts)
	r.must(err)
	var mu sync.Mutex
	var producers sync.WaitGroup
	var done atomic.Int64
	for range 8 {
		producers.Go(func() {
			var own []string
			for {
				result, err := client.Offer(ctx, shaper.Spec{Tenant: "a", Type: "play", Payload: play{}.bytes()})
				if err != nil {
					break
				}
				own = append(own, result.ID)
				done.Add(1)
			}
			mu.Lock()
			defer mu.Unlock()
			accepted = append(accepted, own...)
		})
	}
	time.Sleep(load)
	r.eventually("a busy machine has done something, too", func() bool { return done.Load() >= 100 })
	end()
	producers.Wait()
	return accepted
}
