package buckets

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

const (
	// askerVar makes this binary a process that asks: it holds the address of the Redis.
	askerVar = "JOBSHAPER_BUCKETS_ASKER"
	// soakVar asks for the long form of tests.
	soakVar = "JOBSHAPER_SOAK"

	askers         = 4  // processes
	perAsker       = 50 // goroutines of each
	asksOf         = 2  // questions of each goroutine in a round
	contestedLimit = 100
)

// contested are the limits that all processes ask for in a round.
func contested(round int) (paramSets []Params, prefix string) {
	paramSets = slow()
	for i := range paramSets {
		paramSets[i].Limit = contestedLimit
	}
	return paramSets, fmt.Sprint("round", round)
}

// runAsker answers each line on stdin, "round algorithm", with how many of its requests passed and
// how many failed.
func runAsker(address string) int {
	client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true})
	defer client.Close()
	var round, algorithm int
	for {
		if _, err := fmt.Scan(&round, &algorithm); err != nil {
			return 0 // the test is over
		}
		paramSets, prefix := contested(round)
		l, err := NewRedis(client, paramSets[algorithm], RedisConfig{Prefix: prefix})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		var passed, failed atomic.Int64
		var wg sync.WaitGroup
		for range perAsker {
			wg.Go(func() {
				for range asksOf {
					switch d, err := l.Allow(context.Background(), "k"); {
					case err != nil:
						failed.Add(1)
					case d.Allowed:
						passed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		fmt.Println(passed.Load(), failed.Load())
	}
}

// Exactly the limit passes when 200 goroutines in four processes ask for one key at once, for every
// algorithm, in every round: a few here, a hundred with JOBSHAPER_SOAK=1.
func TestRedisManyProcesses(t *testing.T) {
	t.Parallel()
	rounds := 3
	if os.Getenv(soakVar) != "" {
		rounds = 100
	}
	address := redistest.Start(t).Addr()
	type process struct {
		in  io.WriteCloser
		out *bufio.Reader
	}
	var all []process
	for range askers {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), askerVar+"="+address)
		cmd.Stderr = t.Output()
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("a process that asked: %v", err)
			}
		})
		all = append(all, process{in, bufio.NewReader(out)})
	}
	for round := range rounds {
		paramSets, _ := contested(round)
		for algorithm, params := range paramSets {
			for _, p := range all {
				fmt.Fprintln(p.in, round, algorithm)
			}
			passed, failed := 0, 0
			for _, p := range all {
				var a, b int
				if _, err := fmt.Fscanln(p.out, &a, &b); err != nil {
					t.Fatal(err)
				}
				passed, failed = passed+a, failed+b
			}
			if passed != contestedLimit || failed != 0 {
				t.Errorf("round %d, %s: %d of %d passed and %d failed, want %d and 0", round, params.Algorithm, passed, askers*perAsker*asksOf, failed, contestedLimit)
			}
		}
	}
}
