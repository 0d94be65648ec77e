package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sys/unix"

	"github.com/jobshaper/jobshaper"
)

// A measurement runs its daemons in processes of their own: this same program, which an environment
// variable tells what to be. A child prints the instant of each start in ns of
// CLOCK_MONOTONIC, which all processes of a host share.
const childEnv = "BENCH_CHILD"

type childConfig struct {
	Kind        string // daemon, reference, sleep
	Addr        string
	Concurrency int
	Interval    time.Duration // reference
	N           int           // reference
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail with this clock
	return ts.Nano()
}

func child() {
	var c childConfig
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &c); err != nil {
		panic(err)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	switch c.Kind {
	case "reference", "sleep": // the first asks the kernel to sleep, to the ns; the second sleeps as Go programs do
		begin := time.Now().Add(50 * time.Millisecond)
		at := make([]int64, c.N)
		for k := range at {
			due := begin.Add(time.Duration(k) * c.Interval)
			if c.Kind == "sleep" {
				time.Sleep(time.Until(due))
			} else {
				for time.Until(due) > 0 {
					ts := unix.NsecToTimespec(int64(time.Until(due)))
					_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil)
				}
			}
			at[k] = monotonic()
		}
		for _, v := range at {
			fmt.Fprintln(out, v)
		}
	case "daemon":
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
		rdb := client(c.Addr)
		var mu sync.Mutex
		handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			at := monotonic()
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(out, at)
			return nil
		})
		queue, err := jobshaper.Open(rdb, "bench", jobshaper.Config{Handler: handler, Concurrency: c.Concurrency})
		check(err)
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		check(queue.Start(ctx))
		mu.Lock()
		fmt.Fprintln(out, "ready")
		out.Flush()
		mu.Unlock()
		<-ctx.Done()
		queue.Stop()
		rdb.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// process is a child whose starts are being collected.
type process struct {
	cmd    *exec.Cmd
	ready  chan struct{}
	done   chan struct{}
	mu     sync.Mutex
	starts []int64
}

func spawn(c childConfig) (*process, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self), ready: make(chan struct{}), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		for s := bufio.NewScanner(out); s.Scan(); {
			if strings.HasPrefix(s.Text(), "ready") {
				close(p.ready)
				continue
			}
			v, err := strconv.ParseInt(s.Text(), 10, 64)
			if err != nil {
				continue
			}
			p.mu.Lock()
			p.starts = append(p.starts, v)
			p.mu.Unlock()
		}
	}()
	return p, nil
}

// end stops the child and returns its starts.
func (p *process) end() []int64 {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done
	_ = p.cmd.Wait()
	return p.starts
}
