// Command transcode is a transcoding farm: two tenants offer files in bursts, and the transcoder
// sees one job every 100 ms, whatever arrives.
//
//	go run ./examples/transcode
//
// It needs nothing else: it starts a Redis of its own (or an imitation, where there is no
// redis-server), makes some real media files, transcodes them with ffmpeg (or, where there is none,
// with Go's own codecs), and checks every output.
//
// What a program needs in order to use Jobshaper is in this file, in open, operate and produce. The
// other files make the media, draw the picture and do the sums.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/jobshaper/jobshaper"
)

const (
	downstream = "transcoder"
	jobType    = "video:transcode"
	places     = 8 // jobs that may run at a time in this process

	// pause is the shortest time that a patient tenant waits before it offers a refused file again.
	// A refusal says when the next job can leave at the earliest; since the transcoder is shared,
	// that may be another tenant's job.
	pause = 100 * time.Millisecond
)

// policy protects the transcoder: it must not see more than ten jobs a second, whichever tenants
// they are for.
var policy = jobshaper.DownstreamPolicy{
	Rate:         jobshaper.PerSecond(10),
	DepartureLog: 10_000, // for the last line of the report
	Defaults:     jobshaper.Policy{MaxAttempts: 3, Timeout: 30 * time.Second},
}

// tenant is a customer of the farm: what it may do, and what it does.
type tenant struct {
	name   string
	policy jobshaper.Policy

	bursts, burst int           // how often it offers, and how many files at once
	every         time.Duration // from burst to burst
	patient       bool          // whether it offers a refused file again when told to, or gives it up
}

// tenants together offer more than the transcoder can take, and their buckets are small, so some
// offers are refused. While both have jobs waiting, their weights divide the ten jobs a second into
// six and four.
var tenants = []tenant{
	{name: "studio", policy: jobshaper.Policy{Rate: jobshaper.PerSecond(10), Weight: 3, Depth: 16},
		bursts: 3, burst: 20, every: 2500 * time.Millisecond, patient: true},
	{name: "clips", policy: jobshaper.Policy{Rate: jobshaper.PerSecond(5), Weight: 2, Depth: 10},
		bursts: 3, burst: 14, every: 2500 * time.Millisecond},
}

func main() {
	var opts options
	flag.StringVar(&opts.out, "out", "transcode-output", "`directory` for the media files, made if need be")
	flag.StringVar(&opts.tool, "tool", "auto", "what transcodes: ffmpeg, go (Go's own codecs), or auto: ffmpeg if it is on PATH")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(flag.CommandLine.Output(), "transcode: unexpected argument %q: want only flags, see -help\n", flag.Arg(0))
		os.Exit(2) // as for unknown flags
	}
	opts.tenants = tenants
	os.Exit(exitCode(opts))
}

// exitCode runs the program until it ends or is interrupted; a second interrupt ends it at once.
func exitCode(opts options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)
	ctx, heed := signal.NotifyContext(ctx, syscall.SIGPIPE) // if nobody reads the picture, what was started must still end well
	defer heed()
	_, err := run(ctx, opts, os.Stdout)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		return 130
	}
	fmt.Fprintln(os.Stderr, "transcode:", err)
	return 1
}

// open opens the transcoder's queue. Workers and producers may also be processes of their own, any
// number of each.
func (f *farm) open(rdb redis.UniversalClient) (*jobshaper.Queue, error) {
	// Any asynq.Handler runs the jobs. Each of its starts owns a slot.
	mux := asynq.NewServeMux()
	mux.Use(f.journal.recordStarts)
	mux.Handle(jobType, f.tool.handler)
	policies := map[string]jobshaper.Policy{}
	for _, t := range f.tenants {
		policies[t.name] = t.policy
	}
	return jobshaper.Open(rdb, downstream, jobshaper.Config{
		Policy: policy, Tenants: policies, Handler: mux, Concurrency: places, Logger: f.log,
	})
}

// operate runs the farm until all that was accepted has ended, or ctx ends. When it returns,
// nothing runs any more.
func (f *farm) operate(ctx context.Context, queue *jobshaper.Queue) error {
	if err := queue.Start(ctx); err != nil {
		return err
	}
	defer queue.Stop() // waits for the jobs that run

	ctx, cancel := context.WithCancel(ctx)
	producers, producing := errgroup.WithContext(ctx)
	for _, t := range f.tenants {
		producers.Go(func() error { return f.produce(producing, queue, t) })
	}
	produced := make(chan error, 1)
	go func() { produced <- producers.Wait() }()
	err := f.watch(ctx, queue.Admin(), produced)
	cancel() // if watch failed, producers are still at it
	_ = producers.Wait()
	return err
}

// produce offers the files of a tenant, in bursts.
func (f *farm) produce(ctx context.Context, queue *jobshaper.Queue, t tenant) error {
	begun := time.Now()
	for i, file := range f.files[t.name] {
		burst := time.Duration(i / t.burst)
		if err := sleep(ctx, time.Until(begun.Add(burst*t.every))); err != nil {
			return err
		}
		if err := f.offer(ctx, queue, t, file); err != nil {
			return err
		}
	}
	return nil
}

// offer offers one file. A refusal is an answer, not an error: the bucket is full, nothing was
// kept, and the answer says when to try again.
func (f *farm) offer(ctx context.Context, queue *jobshaper.Queue, t tenant, file file) error {
	task := asynq.NewTask(jobType, file.payload())
	for wait := pause; ; wait = min(2*wait, 10*pause) {
		at := time.Now()
		// With an id of its own a job can be offered twice, say after a lost reply, and is still
		// one job.
		result, err := queue.Enqueue(ctx, t.name, task, asynq.TaskID(file.id))
		if err != nil {
			return err
		}
		f.journal.recordOffer(t.name, at, result)
		if result.Status == jobshaper.Accepted || !t.patient {
			return nil
		}
		// Never earlier than told, less and less often, and not when everybody else does.
		if err := sleep(ctx, max(result.RetryAfter, wait)+rand.N(pause)); err != nil {
			return err
		}
	}
}

// sleep waits for d, if that is positive, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
