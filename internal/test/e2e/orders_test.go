package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestOrdersOfAnOperator gives a tenant with a backlog one order after the other: pause, resume,
// ten times the rate, a tenth of it, a bound below its level, removal. Each takes effect at once,
// and none makes a burst.
func TestOrdersOfAnOperator(t *testing.T) {
	notShort(t)
	t.Parallel()
	ctx := context.Background()
	r := newRig(t)
	s := newSeededStorm(r)
	s.backlog("a", 10, 150, play{})
	r.startBoth(2)

	r.starts(5)
	r.must(r.admin.Pause(ctx, "a", 0))
	paused := history.Now()
	time.Sleep(time.Second) // ten would start in that time
	resumed := history.Now()
	r.must(r.admin.Resume(ctx, "a"))
	// What was granted before the order is recalled by a message, which takes a while to reach the
	// processes.
	still := r.history().Since(paused + int64(shaper.DefaultTolerance+4*r.weather.longest())).Until(resumed).Of(history.Start)
	if len(still) > 0 {
		t.Errorf("%d starts while paused, the first %v after the order", len(still), time.Duration(still[0].At-paused))
	}
	n := len(r.history().Of(history.Start))
	r.starts(n + 5)
	s.setRate("a", buckets.PerSecond(100))
	r.starts(n + 55)
	s.setRate("a", buckets.PerSecond(10))
	slow := len(r.history().Of(history.Start))
	r.starts(slow + 5)

	// A bound below the level: nothing enters, and nothing that is inside is lost.
	r.tenant("a", shaper.Policy{Depth: 1})
	result, err := offer(ctx, r.client, r.rec, shaper.Spec{Tenant: "a", ID: "over", Type: "play", Payload: play{}.bytes()})
	r.must(err)
	if result.Status != shaper.Refused || result.Reason != shaper.RefusedFull {
		t.Errorf("offered above the bound: %+v, want it refused as full", result)
	}
	s.setRate("a", buckets.PerSecond(100))
	if err := r.admin.Remove(ctx, "a"); !errors.Is(err, shaper.ErrInvalid) {
		t.Errorf("removed with a backlog: %v, want an error", err)
	}
	s.settle()
	s.setRate("a", buckets.PerSecond(2))
	r.offer("a", 1, play{})
	s.settle()
	// It is gone, the default rate is in force, and its timeline stays: whoever comes back under
	// the name earns no earlier start.
	gone := history.Event{Kind: history.Set, Tenant: "a", Outcome: shaper.DefaultPolicy().Rate.String()}
	r.must(r.rec.Record(gone))
	r.must(r.admin.Remove(ctx, "a"))
	r.must(r.rec.Record(gone))
	r.offer("a", 5, play{})
	s.settle()
	report, err := history.Judge(r.path, history.Terms{Tolerance: shaper.DefaultTolerance, Slack: time.Millisecond})
	r.must(err)
	r.refuse(report.Violations())
	t.Log(report)
}

// TestManyDeadAtOnce requeues 1 000 dead jobs at once, while somebody archives a thousand tickets
// in asynq and runs them by hand, all together and one by one: every start owns a slot.
func TestManyDeadAtOnce(t *testing.T) {
	notShort(t)
	t.Parallel()
	const jobs, perSec = 1000, 250
	ctx := context.Background()
	r := newRig(t)
	p := rate(perSec)
	p.MaxAttempts = 1
	r.tenant("a", p)
	r.start(role{Scheduler: true, Worker: true, Places: 20})
	r.offer("a", jobs, play{Fail: 1})
	r.eventually("all are dead", func() bool {
		info, err := r.admin.Tenant(ctx, "a")
		r.must(err)
		return info.Dead == jobs
	})
	n, full, err := r.admin.RequeueDead(ctx, "a")
	r.must(err)
	if n != jobs || full {
		t.Fatalf("%d requeued, full %v; want %d", n, full, jobs)
	}
	r.starts(jobs + 10)
	forger := newForger(r)
	ticket := []byte(queue.Ticket{Tenant: "a", ID: r.history()[0].ID, Release: 1}.String())
	for range jobs {
		forger.put(ticket, asynq.ProcessIn(time.Hour))
	}
	archived, err := forger.inspector.ArchiveAllScheduledTasks(forger.queue)
	r.must(err)
	tasks, err := forger.inspector.ListArchivedTasks(forger.queue, asynq.PageSize(50))
	r.must(err)
	for _, task := range tasks {
		r.must(forger.inspector.RunTask(forger.queue, task.ID))
	}
	ran, err := forger.inspector.RunAllArchivedTasks(forger.queue)
	r.must(err)
	if archived != jobs || ran != jobs-len(tasks) {
		t.Errorf("%d tickets archived, %d run together; want %d and %d", archived, ran, jobs, jobs-len(tasks))
	}
	r.drained()
	forger.taken()
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(perSec)), history.Accounts(h))
	if n := len(h.Of(history.Start)); n != 2*jobs {
		t.Errorf("%d starts, want %d", n, 2*jobs)
	}
}
