package workers

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

// stopping starts to stop the pool, waits until nothing can start any more, and returns a channel
// that is closed when the pool has stopped.
func (b *bench) stopping() <-chan struct{} {
	b.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.pool.Stop()
	}()
	<-b.pool.hold.Done()
	return done
}

func TestStopIsSafeAtAnyTime(t *testing.T) {
	b := newBench(t, func(context.Context, *asynq.Task) error { return nil }, Config{})
	b.pool.Stop()
	if err := b.pool.Start(t.Context()); err == nil {
		t.Error("a stopped pool started")
	}
	b = newBench(t, func(context.Context, *asynq.Task) error { return nil }, Config{}).start()
	if err := b.pool.Start(t.Context()); err == nil {
		t.Error("a pool started twice")
	}
	b.pool.Stop()
	b.pool.Stop()
	if pools := b.rdb.HGetAll(t.Context(), "shaper:{d}:pools").Val(); len(pools) > 0 {
		t.Errorf("a stopped pool is still known: %v", pools)
	}
}

// TestNothingStartsAfterStop: a worker that ends a job during the grace is given no other one,
// although hundreds are due.
func TestNothingStartsAfterStop(t *testing.T) {
	t.Parallel()
	var starts atomic.Int64
	release := make(chan struct{})
	b := newBench(t, func(context.Context, *asynq.Task) error {
		starts.Add(1)
		<-release
		return nil
	}, Config{Concurrency: 2})
	b.policy(shaper.Policy{Rate: buckets.PerSecond(10_000)})
	b.start()
	for i := range 200 {
		b.offer("a", i)
	}
	until(t, "both places are taken", func() bool { return starts.Load() == 2 })
	stopped := b.stopping()
	close(release)
	<-stopped
	if n := starts.Load(); n != 2 {
		t.Errorf("%d starts, want the 2 from before", n)
	}
	info, err := b.admin.Tenant(t.Context(), "a")
	b.must(err)
	if info.Counters.Done != 2 || info.Running != 0 || info.Waiting+info.Out != 198 {
		t.Errorf("%+v, want 2 done and 198 waiting or out", info)
	}
}

// TestStopDoesNotWaitForSlots: a job that was granted a slot which has not come goes back,
// uncharged.
func TestStopDoesNotWaitForSlots(t *testing.T) {
	t.Parallel()
	b, job := ahead(t, func(context.Context, *asynq.Task) error { return nil }, func(b *bench, _ shaper.Job) { b.stopping() })
	b.pool.Stop()
	if job := b.find("a", job.ID); job.State.Ended() || job.State == shaper.StateRunning || job.Charged != 0 {
		t.Errorf("%s, %d attempts charged; want it back, and none", job.State, job.Charged)
	}
}

// TestStopHandsBack: a handler that outlives the grace learns why its context ends, and its job
// goes back, whether it heeds that or not. What it does later is nobody's business.
func TestStopHandsBack(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"heeds its context": false, "ignores it": true} {
		t.Run(name, func(t *testing.T) {
			causes, started, release := make(chan error, 1), make(chan struct{}), make(chan struct{})
			b := newBench(t, func(ctx context.Context, _ *asynq.Task) error {
				close(started)
				select {
				case <-ctx.Done():
				case <-time.After(patience):
				}
				causes <- context.Cause(ctx)
				if deaf {
					<-release
					return nil
				}
				return ctx.Err()
			}, Config{Grace: 50 * time.Millisecond, KillGrace: 50 * time.Millisecond}).start()
			id := b.offer("a", 1)
			<-started
			b.pool.Stop()
			if cause := <-causes; cause != shaper.ErrStopping {
				t.Errorf("its context ended by %v, want %v", cause, shaper.ErrStopping)
			}
			close(release)
			b.pool.idle.Wait()
			if job := b.find("a", id); job.State.Ended() || job.State == shaper.StateRunning || job.Charged != 0 {
				t.Errorf("%s, %d attempts charged; want it back, and none", job.State, job.Charged)
			}
		})
	}
}

// TestStopWithoutRedis: a pool whose Redis is gone stops all the same, and its handlers get their
// grace.
func TestStopWithoutRedis(t *testing.T) {
	testenv.Long(t, "lasts a grace period")
	t.Parallel()
	started, ended := make(chan struct{}), make(chan struct{})
	b := newBench(t, func(context.Context, *asynq.Task) error {
		close(started)
		time.Sleep(100 * time.Millisecond)
		close(ended)
		return nil
	}, Config{Grace: 300 * time.Millisecond, KillGrace: 50 * time.Millisecond}).start()
	b.offer("a", 1)
	<-started
	b.server.Kill()
	stopped := b.stopping()
	select {
	case <-stopped:
	case <-time.After(patience):
		t.Fatal("stop hangs")
	}
	<-ended
}

// TestStoppedSchedulerDispatchesWhatItReleased: tickets that are on their way when the scheduler
// stops arrive.
func TestStoppedSchedulerDispatchesWhatItReleased(t *testing.T) {
	b := newBench(t, func(context.Context, *asynq.Task) error { return nil }, Config{})
	_, err := b.pool.gate.Beat(t.Context(), "elsewhere", 10, time.Minute, nil) // places to release for
	b.must(err)
	dispatching, dispatched := make(chan struct{}), make(chan error, 1)
	s, err := shaper.NewScheduler(b.rdb, "d", dispatcherFunc(func(ctx context.Context, _ []string) error {
		close(dispatching)
		time.Sleep(50 * time.Millisecond) // Stop has begun by then
		dispatched <- ctx.Err()
		return nil
	}), shaper.SchedulerConfig{})
	b.must(err)
	b.must(s.Start(t.Context()))
	b.offer("a", 1)
	<-dispatching
	s.Stop()
	if err := <-dispatched; err != nil {
		t.Errorf("the context of the dispatch ended: %v", err)
	}
}

type dispatcherFunc func(context.Context, []string) error

func (f dispatcherFunc) Dispatch(ctx context.Context, tickets []string) error {
	return f(ctx, tickets)
}

// TestTheEndOfTheContextIsAStop: nothing starts any more, what runs ends within the grace and is
// not told, and the pool takes its leave, though nobody calls Stop; a Stop waits for all that.
func TestTheEndOfTheContextIsAStop(t *testing.T) {
	t.Parallel()
	begun, release := make(chan context.Context, 1), make(chan struct{})
	b := newBench(t, func(ctx context.Context, _ *asynq.Task) error {
		begun <- ctx
		<-release
		return context.Cause(ctx)
	}, Config{Concurrency: 1, Grace: patience})
	b.policy(shaper.Policy{Rate: buckets.PerSecond(1000)})
	ctx, cancel := context.WithCancel(t.Context())
	b.must(b.pool.Start(ctx))
	b.must(b.scheduler.Start(t.Context()))
	t.Cleanup(b.scheduler.Stop)
	runs, waits := b.offer("a", 1), b.offer("a", 2)
	handler := <-begun
	cancel()
	<-b.pool.hold.Done() // a Stop has begun
	if err := handler.Err(); err != nil {
		t.Errorf("the running job was told: %v", err)
	}
	close(release)
	until(t, "the pool is gone", func() bool {
		return b.rdb.HLen(context.Background(), "shaper:{d}:pools").Val() == 0
	})
	b.pool.Stop()
	if job := b.find("a", runs); job.State != shaper.StateDone {
		t.Errorf("what ran is %s (%s), want done", job.State, job.Error)
	}
	if job := b.find("a", waits); job.State.Ended() || job.Charged != 0 {
		t.Errorf("what waited is %s, %d attempts charged; want it back, and none", job.State, job.Charged)
	}
}
