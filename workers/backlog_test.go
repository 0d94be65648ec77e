package workers

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

// A ticket that waits in asynq is used again, wherever asynq keeps it, and so there is one for a
// job however often it was released. Only where a worker has it already is there another.
func TestWaitingTicketIsUsedAgain(t *testing.T) {
	server := redistest.Start(t)
	d, err := NewDispatcher(server.Client(), "d", nil)
	if err != nil {
		t.Fatal(err)
	}
	inspector := asynq.NewInspectorFromRedisClient(server.Client())
	const name = "shaper-d"
	is := func(what string, pending, elsewhere int) {
		t.Helper()
		i, err := inspector.GetQueueInfo(name)
		if err != nil {
			t.Fatal(err)
		}
		if other := i.Archived + i.Scheduled + i.Retry + i.Active; i.Pending != pending || other != elsewhere {
			t.Errorf("%s: %d tickets wait, and %d are elsewhere; want %d and %d", what, i.Pending, other, pending, elsewhere)
		}
	}
	dispatch := func(tickets ...string) {
		t.Helper()
		if err := d.Dispatch(t.Context(), tickets); err != nil {
			t.Fatal(err)
		}
	}
	dispatch("a 1 1")
	dispatch("a 1 2", "a 1 3", "a 2 1")
	is("released again", 2, 0)
	if err := inspector.ArchiveTask(name, "d:a:1"); err != nil {
		t.Fatal(err)
	}
	is("archived by hand", 1, 1)
	dispatch("a 1 4")
	is("archived, and released again", 2, 0)
	if err := inspector.DeleteTask(name, "d:a:1"); err != nil {
		t.Fatal(err)
	}
	dispatch("a 1 5")
	is("deleted, and released again", 2, 0)
	if err := server.Client().LRem(t.Context(), "asynq:{shaper-d}:pending", 1, "d:a:1").Err(); err != nil {
		t.Fatal(err)
	}
	dispatch("a 1 6")
	is("its entry was lost, and it was released again", 2, 0)

	taken, goOn := make(chan struct{}, 2), make(chan struct{})
	worker := asynq.NewServerFromRedisClient(server.Client(), asynq.Config{Queues: map[string]int{name: 1}, Concurrency: 2, LogLevel: asynq.FatalLevel})
	if err := worker.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		taken <- struct{}{}
		<-goOn
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	defer worker.Shutdown()
	defer close(goOn)
	<-taken
	<-taken
	dispatch("a 2 7")
	dispatch("a 2 7")
	is("taken, and released again", 1, 2)
}

// While nobody takes tickets, asynq has no more of them than there are jobs, however often these
// come back and are released again; and an early ticket starts its job.
func TestTicketsDoNotPileUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(context.Context, *asynq.Task) error { return nil }, Config{})
	b.policy(shaper.Policy{Rate: buckets.PerSecond(100_000)})
	dispatcher, err := NewDispatcher(b.rdb, "d", nil)
	b.must(err)
	b.scheduler, err = shaper.NewScheduler(b.rdb, "d", dispatcher, shaper.SchedulerConfig{TicketTTL: 40 * time.Millisecond})
	b.must(err)
	_, err = queue.NewGate(queue.Open(b.rdb, "d")).Beat(t.Context(), "idle", 100, time.Hour, nil) // a pool that takes nothing
	b.must(err)
	const jobs = 30
	for i := range jobs {
		b.offer("a", i)
	}
	b.must(b.scheduler.Start(t.Context()))
	defer b.scheduler.Stop()
	until(t, "each job was released ten times", func() bool {
		info, err := b.admin.Tenant(t.Context(), "a")
		b.must(err)
		return info.Counters.LostTickets >= 10*jobs
	})
	if n := b.rdb.LLen(t.Context(), "asynq:{shaper-d}:pending").Val(); n > jobs {
		t.Errorf("%d tickets wait for %d jobs", n, jobs)
	}
	b.must(b.pool.Start(t.Context()))
	defer b.pool.Stop()
	for i := range jobs {
		if job := b.wait("a", fmt.Sprint("a-", i)); job.State != shaper.StateDone {
			t.Errorf("%+v, want done", job)
		}
	}
}

// An asynq server that takes a downstream's tickets and is none of its pools is found, even in the
// process of a pool; pools are not, nor who serves other queues.
func TestStrangers(t *testing.T) {
	b := newBench(t, func(context.Context, *asynq.Task) error { return nil }, Config{}).start()
	other := asynq.NewServerFromRedisClient(b.server.Client(), asynq.Config{Queues: map[string]int{"shaper-e": 1}, LogLevel: asynq.FatalLevel})
	stranger := asynq.NewServerFromRedisClient(b.server.Client(), asynq.Config{Queues: map[string]int{"default": 1, "shaper-d": 1}, LogLevel: asynq.FatalLevel})
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	b.must(other.Start(handler))
	defer other.Shutdown()
	found := func() []string {
		l, err := Backlog(t.Context(), b.rdb, "d")
		b.must(err)
		return l.Strangers
	}
	servers := func(n int) func() bool {
		return func() bool {
			l, err := asynq.NewInspectorFromRedisClient(b.rdb).Servers()
			b.must(err)
			return len(l) == n
		}
	}
	until(t, "asynq knows both servers", servers(2))
	if l := found(); len(l) > 0 {
		t.Errorf("found %v, want nobody", l)
	}
	b.must(stranger.Start(handler))
	until(t, "a stranger is found", func() bool { return len(found()) == 1 })
	stranger.Shutdown()
	until(t, "it is gone", func() bool { return len(found()) == 0 })
}

// A stranger counts when it was found twice.
func TestStrangersAreFoundTwice(t *testing.T) {
	var s strangers
	for _, step := range []struct{ found, want []string }{
		{[]string{"a:1"}, nil}, {nil, nil}, {[]string{"a:1", "b:2"}, nil}, {[]string{"b:2"}, []string{"b:2"}}, {nil, nil},
	} {
		s.looked = time.Time{}
		if got, err := s.look(func() ([]string, error) { return step.found, nil }); err != nil || !slices.Equal(got, step.want) {
			t.Errorf("found %v: %v, %v; want %v", step.found, got, err, step.want)
		}
	}
	if got, err := s.look(func() ([]string, error) { t.Error("looked again at once"); return nil, nil }); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}
