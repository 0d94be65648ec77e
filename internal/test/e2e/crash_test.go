package e2e

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestCrashedJobStartsAgain kills the worker of a job that runs. Another one starts it once the
// lease is over.
func TestCrashedJobStartsAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		lease  time.Duration
		within time.Duration // generously
	}{
		{"short lease", time.Second, 10 * time.Second},
		{"default lease", shaper.DefaultLease, 25 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && tc.lease > time.Second {
				t.Skip("takes the time of a lease")
			}
			r := newRig(t)
			r.tenant("a", rate(10))
			r.downstream(shaper.DownstreamPolicy{Lease: tc.lease})
			worker := r.start(role{Worker: true})
			r.daemon(role{Scheduler: true})
			r.offer("a", 1, play{First: time.Hour})
			r.starts(1)
			worker.kill()
			r.start(role{Worker: true})
			ready := history.Now() // a machine may take its time to start a process
			h := r.drained()
			r.refuse(history.Accounts(h), history.Starts(h, perSecond(10)))
			starts := h.Of(history.Start)
			if again := time.Duration(starts[1].At - ready); len(starts) != 2 || again > tc.within {
				t.Errorf("%d starts, the second %v after the kill and the start of another worker; want 2, and within %v", len(starts), again, tc.within)
			}
		})
	}
}

// TestPoisonDiesAlone runs a job that takes its process down, each time, among eight jobs of four
// tenants. In the end it is dead, and they are done.
func TestPoisonDiesAlone(t *testing.T) {
	notShort(t)
	t.Parallel()
	r := newRig(t)
	r.downstream(shaper.DownstreamPolicy{Lease: time.Second, Defaults: rate(50)})
	r.daemon(role{Scheduler: true})
	tenants := []string{"a", "b", "c", "d"}
	for _, tenant := range tenants {
		r.offer(tenant, 2, play{For: time.Second})
	}
	id := r.offerOne(shaper.Spec{Tenant: "mallory"}, play{For: 200 * time.Millisecond, Poison: true})
	poison := func() shaper.Job {
		job, err := r.client.Find(context.Background(), "mallory", id)
		r.must(err)
		return job
	}
	for deaths := 0; poison().State != shaper.StateDead; {
		worker := r.start(role{Worker: true})
		died := make(chan error, 1)
		go func() { died <- worker.cmd.Wait() }()
		r.eventually("the worker has died, or the poison", func() bool { return len(died) > 0 || poison().State == shaper.StateDead })
		if len(died) == 0 {
			worker.cmd.Process.Kill()
		} else if deaths++; deaths > 5 {
			t.Fatalf("%d processes died; the poison: %+v", deaths, poison())
		}
		<-died
		worker.ended = true
		worker.cut()
	}
	if job := poison(); job.Reason != shaper.ReasonCrashed || job.Blamed != shaper.DefaultMaxCrashes {
		t.Errorf("the poison is %+v; want it to be blamed for %d crashes", job, shaper.DefaultMaxCrashes)
	}
	r.start(role{Worker: true})
	r.eventually("all others have ended", func() bool {
		s, err := r.admin.Stats(context.Background(), false)
		return err == nil && s.Level()+s.Out+s.Running == 0
	})
	h := r.history()
	r.refuse(history.Starts(h, perSecond(50)))
	for _, tenant := range tenants {
		r.charged(h, tenant, 1)
	}
}

// TestFrozenWorkerLosesItsLease freezes a worker for longer than a lease, while it runs a job that
// another one takes over. When it comes back its handler is told, and what it reports counts for
// nothing.
func TestFrozenWorkerLosesItsLease(t *testing.T) {
	notShort(t)
	t.Parallel()
	r := newRig(t)
	r.tenant("a", rate(10))
	r.downstream(shaper.DownstreamPolicy{Lease: 2 * time.Second})
	r.daemon(role{Scheduler: true})
	frozen := r.start(role{Worker: true})
	// The frozen worker has that long to learn of its loss.
	r.offer("a", 1, play{First: time.Hour, For: 6 * time.Second})
	r.starts(1)
	frozen.stop()
	r.start(role{Worker: true})
	r.starts(2)
	frozen.signal(syscall.SIGCONT)
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(10)), history.Accounts(h))
	r.charged(h, "a", 1)
	starts, ends := h.Of(history.Start), h.Of(history.End)
	if len(starts) != 2 || len(ends) != 2 || ends[0].Attempt != starts[0].Attempt || ends[0].Outcome != history.Back {
		t.Errorf("started %+v, ended %+v; want two starts, and the first to give up before the second is done", starts, ends)
	}
}

// TestRedisComesBack kills Redis five times under load; what it had acknowledged is in its
// append-only file.
func TestRedisComesBack(t *testing.T) {
	notShort(t)
	t.Parallel()
	r := newServerRig(t, redistest.AOF(), redistest.Acknowledged())
	r.tenant("a", rate(20))
	r.startBoth(2)
	r.offer("a", 80, play{For: 20 * time.Millisecond})
	for n := range 5 {
		r.starts((n + 1) * 13)
		r.server.Kill()
		r.server.Restart()
	}
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(20)), history.Accounts(h))
	if n := len(h.Of(history.Start)); n != 80 {
		t.Errorf("%d starts, want 80", n)
	}
}

// TestRedisLosesTheLastStart brings Redis back with the data from before a start that it had
// granted. Nothing is known of that start then: its job starts again, no sooner than an interval
// after it.
func TestRedisLosesTheLastStart(t *testing.T) {
	notShort(t)
	t.Parallel()
	const interval = 2 * time.Second
	r := newServerRig(t, redistest.AOF(), redistest.Acknowledged())
	r.tenant("a", shaper.Policy{Rate: buckets.Rate{Events: 1, Period: interval}})
	r.daemon(both)
	r.offer("a", 3, play{})
	r.starts(1)
	r.eventually("the first job is done", func() bool {
		s, err := r.admin.Stats(context.Background(), true)
		return err == nil && s.Counters.Done == 1
	})
	const files = "appendonlydir"
	stale := filepath.Join(t.TempDir(), files)
	r.must(os.CopyFS(stale, os.DirFS(filepath.Join(r.server.Dir(), files))))
	lost := r.starts(2).Of(history.Start)[1]
	r.server.Kill()
	r.must(os.RemoveAll(filepath.Join(r.server.Dir(), files)))
	r.must(os.CopyFS(filepath.Join(r.server.Dir(), files), os.DirFS(stale)))
	r.server.Restart()
	again := r.starts(3).Of(history.Start)[2]
	if again.ID != lost.ID {
		t.Errorf("job %s starts after the restart, want %s, whose start Redis has lost", again.ID, lost.ID)
	}
	if gap := time.Duration(again.At - lost.At); gap < interval-shaper.DefaultTolerance-time.Millisecond {
		t.Errorf("a start %v after one that Redis has lost, want at least the interval, %v", gap, interval)
	}
	h := r.drained()
	rule := history.Rule{Rate: buckets.Rate{Events: 1, Period: interval}, Tolerance: shaper.DefaultTolerance, Slack: time.Millisecond}
	r.refuse(history.Spacing(h, rule), history.Slots(h, rule), history.OnTime(h, rule), history.Lost(h), history.Unexpected(h))
}
