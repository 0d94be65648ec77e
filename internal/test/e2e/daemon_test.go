package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
	"github.com/jobshaper/jobshaper/workers/target"
)

// role is what a process of ours does.
type role struct {
	Redis      string // URL
	Downstream string
	History    string // file

	Scheduler bool
	TicketTTL time.Duration // of Scheduler
	Worker    bool
	Places    int           // default 10
	Grace     time.Duration // of Worker
	Target    string        // URL to which Worker posts each job, besides playing it
	Shell     bool          // jobs of type "sh" are scripts, which Worker runs

	Lean bool // a handler uses its job's attempt as the number of its start, see count; for histories of hours

	Offer   *offering // a producer's work; the process ends after it
	Stream  *stream   // the same; it ends on SIGTERM
	Operate string    // an operator's: a call of operations, three times; the process ends after it

	// For a process: its program, where that crashes (POINT:N), and whether it must be this binary,
	// so that races in it are found if the tests have the race detector. By default it is lean.
	program, crash string
	checked        bool
	// For a daemon in the test's own process.
	metrics prometheus.Registerer
	policy  shaper.DownstreamPolicy // with tenants, its configuration; without either it has none
	tenants map[string]shaper.Policy
	log     *slog.Logger
}

// play is a job's payload: how its handler behaves.
type play struct {
	For      time.Duration // how long it runs
	First    time.Duration // how much longer its first start runs
	Deaf     bool          // it does not heed its context meanwhile
	Fail     int           // how many of its first starts fail
	Throttle time.Duration // its first start is throttled for so long
	Panic    bool          // its first start panics
	Goexit   bool          // its first start ends its goroutine
	Poison   bool          // each start takes its process down
	Ballast  []byte        // only its size matters
	Rubbish  int           // its first start fails with so many bytes that are not text
}

func (p play) bytes() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // it holds nothing that JSON cannot
	}
	return b
}

// act is the handler, for the nth start of its job: it behaves as the payload says.
func act(ctx context.Context, task *asynq.Task, nth int) error {
	var p play
	if err := json.Unmarshal(task.Payload(), &p); err != nil {
		return err
	}
	if nth == 1 {
		p.For += p.First
	}
	if p.Deaf {
		ctx = context.WithoutCancel(ctx)
	}
	over := time.NewTimer(p.For)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case p.Poison:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case p.Panic && nth == 1:
		panic("it was to panic")
	case p.Goexit && nth == 1:
		runtime.Goexit()
	case p.Rubbish > 0 && nth == 1:
		return errors.New(strings.Repeat("\xff\xfe\x00\x1b", p.Rubbish/4))
	case p.Throttle > 0 && nth == 1:
		return workers.Throttled(p.Throttle, nil)
	case nth <= p.Fail:
		return fmt.Errorf("start %d was to fail", nth)
	}
	return nil
}

// recorded is a handler that writes its start, whose instant is that of its first instruction, and
// its end into a history. which tells the number of the start.
func recorded(rec *history.Recorder, which func(workers.Info) (int, error), h func(_ context.Context, _ *asynq.Task, nth int) error) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) (err error) {
		e := history.Event{Kind: history.Start, At: history.Now(), Wall: time.Now().UnixMicro()}
		job, _ := workers.JobFrom(ctx)
		e.Tenant, e.ID, e.Attempt, e.Slot = job.Tenant, job.ID, job.Attempt, job.Slot.UnixMicro()
		nth, err := which(job)
		if err != nil {
			return err
		}
		if err := rec.Record(e); err != nil {
			return err
		}
		end := history.Event{Kind: history.End, Tenant: e.Tenant, ID: e.ID, Attempt: e.Attempt, Outcome: history.Failed}
		defer func() { err = errors.Join(err, rec.Record(end)) }() // after a panic and Goexit too
		err = h(ctx, task, nth)
		end.Outcome = outcome(err)
		return err
	}
}

// count returns how many calls for the same file there have been, this one included, in whatever
// process. Attempts do not tell which start of a job this is: one may go by without a start, when
// its slot is missed.
func count(path string) (int, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Write([]byte{'.'}); err != nil {
		return 0, err
	}
	n, err := f.Seek(0, io.SeekCurrent)
	return int(n), err
}

func outcome(err error) string {
	var throttled *workers.ThrottledError
	switch {
	case err == nil:
		return history.Done
	case errors.As(err, &throttled):
		return history.Throttled
	case errors.Is(err, shaper.ErrStopping), errors.Is(err, shaper.ErrLeaseLost):
		return history.Back
	}
	return history.Failed
}

// daemon is a scheduler, a pool of workers, or both, in this process.
type daemon struct {
	rdb   redis.UniversalClient
	rec   *history.Recorder
	queue *jobshaper.Queue
}

func startDaemon(ctx context.Context, r role, log *slog.Logger) (_ *daemon, err error) {
	d := &daemon{}
	defer func() {
		if err != nil {
			d.stop()
		}
	}()
	if d.rdb, err = redisurl.Open(r.Redis, redisurl.Config{}); err != nil {
		return nil, err
	}
	if d.rec, err = history.Open(r.History); err != nil {
		return nil, err
	}
	cfg := jobshaper.Config{
		Policy: r.policy, Tenants: r.tenants, Concurrency: r.Places, Grace: r.Grace, KillGrace: time.Second, TicketTTL: r.TicketTTL,
		Logger: log, Metrics: r.metrics,
	}
	if r.Scheduler {
		cfg.Roles |= jobshaper.RoleScheduler
	}
	if r.Worker {
		cfg.Roles |= jobshaper.RoleWorker
		if cfg.Handler, err = handlerOf(r, d.rec); err != nil {
			return nil, err
		}
	}
	if d.queue, err = jobshaper.Open(d.rdb, r.Downstream, cfg); err != nil {
		return nil, err
	}
	return d, d.queue.Start(ctx)
}

func handlerOf(r role, rec *history.Recorder) (asynq.Handler, error) {
	which := func(job workers.Info) (int, error) {
		return count(filepath.Join(filepath.Dir(r.History), job.Tenant+" "+job.ID))
	}
	if r.Lean {
		which = func(job workers.Info) (int, error) { return job.Attempt, nil }
	}
	if r.Shell {
		shell, err := target.NewExec(target.ExecConfig{Argv: []string{"sh"}, KillDelay: 100 * time.Millisecond})
		if err != nil {
			return nil, err
		}
		return recorded(rec, which, func(ctx context.Context, task *asynq.Task, nth int) error {
			if task.Type() == "sh" {
				return shell.ProcessTask(ctx, task)
			}
			return act(ctx, task, nth)
		}), nil
	}
	if r.Target == "" {
		return recorded(rec, which, act), nil
	}
	handler, err := target.NewHTTP(target.HTTPConfig{URL: r.Target, Headers: map[string]string{senderHeader: strconv.Itoa(os.Getpid())}})
	if err != nil {
		return nil, err
	}
	return &posting{handler.(workers.Preparer), func(start func(context.Context, *asynq.Task) error) asynq.Handler {
		return recorded(rec, which, func(ctx context.Context, task *asynq.Task, nth int) error {
			return errors.Join(start(ctx, task), act(ctx, task, nth))
		})
	}}, nil
}

// posting posts each job to a target, as a daemon does, and plays it besides. Its starts are
// recorded once their slots have come.
type posting struct {
	workers.Preparer
	recorded func(start func(context.Context, *asynq.Task) error) asynq.Handler
}

func (p *posting) NewPlace() workers.Place { return &postingPlace{p.Preparer.NewPlace(), p} }

type postingPlace struct {
	workers.Place
	posting *posting
}

func (p *postingPlace) Start(ctx context.Context, task *asynq.Task, slot *workers.Slot) error {
	if err := slot.Wait(ctx); err != nil {
		return err
	}
	return p.posting.recorded(func(ctx context.Context, task *asynq.Task) error {
		return p.Place.Start(ctx, task, slot)
	}).ProcessTask(ctx, task)
}

// stop ends the daemon and waits for it.
func (d *daemon) stop() {
	if d.queue != nil {
		d.queue.Stop()
	}
	if d.rec != nil {
		d.rec.Close()
	}
	if d.rdb != nil {
		d.rdb.Close()
	}
}

// runProcess is main of a process that a test has started. It returns the exit code.
func runProcess(text string) int {
	if err := enact(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// enact plays a role: it says "ready" on stdout, and a daemon ends well on SIGTERM, or when its
// stdin ends, which it does when the test is gone.
func enact(text string) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	if r.Offer != nil {
		return r.produce(context.Background())
	}
	if r.Operate != "" {
		return r.operate(context.Background())
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); { // each line asks how the process is
			fmt.Println(runtime.NumGoroutine())
		}
		cancel()
	}()
	if r.Stream != nil {
		return r.pour(ctx)
	}
	d, err := startDaemon(ctx, r, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	defer d.stop()
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}
