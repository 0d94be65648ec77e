package shaper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// carrier is a Dispatcher that fails some times, and then hands tickets to the test. It can hold
// its scheduler up.
type carrier struct {
	mu      sync.Mutex
	fail    int
	tickets chan queue.Ticket
	most    int           // tickets after which it waits
	goOn    chan struct{} // until this is closed
}

func newCarrier(fail int) *carrier {
	return &carrier{fail: fail, tickets: make(chan queue.Ticket, 1000)}
}

func (c *carrier) Dispatch(_ context.Context, tickets []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail > 0 {
		c.fail--
		return errors.New("the line is dead")
	}
	for _, text := range tickets {
		k, err := queue.ParseTicket(text)
		if err != nil {
			return err
		}
		c.tickets <- k
	}
	if c.most -= len(tickets); c.goOn != nil && c.most <= 0 {
		<-c.goOn
	}
	return nil
}

func (c *carrier) next(t *testing.T) queue.Ticket {
	t.Helper()
	select {
	case k := <-c.tickets:
		return k
	case <-withTimeout(t).Done():
		t.Fatal("no ticket came")
		return queue.Ticket{}
	}
}

func schedule(t *testing.T, w *world, c *carrier, opts SchedulerConfig) *Scheduler {
	t.Helper()
	opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := NewScheduler(w.rdb, w.q.Downstream, c, opts)
	w.must(err)
	w.must(s.Start(t.Context()))
	t.Cleanup(s.Stop)
	return s
}

// Two schedulers release each job about when it may leave: not so early that a worker is held for
// it, and no slot is missed for want of a ticket. On a machine that stalls the test itself may come
// late to a slot, so it tries until it does not.
func TestSchedulersReleaseInTime(t *testing.T) {
	for begun := time.Now(); ; {
		took, enough := releasedInTime(t), 19*50*time.Millisecond+time.Second
		if t.Failed() || took <= enough {
			return
		}
		if time.Since(begun) > testenv.Patience {
			t.Fatalf("20 slots at 20/s took %v, want at most %v", took, enough)
		}
	}
}

// releasedInTime returns how long 20 slots at 20/s took.
func releasedInTime(t *testing.T) time.Duration {
	t.Helper()
	w := on(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(20, time.Second)})
	w.pool("p", 4)
	c := newCarrier(0)
	defer schedule(t, w, c, SchedulerConfig{Poll: time.Hour}).Stop()
	defer schedule(t, w, c, SchedulerConfig{Poll: time.Hour}).Stop()
	const n = 20
	w.offers("a", n)
	var slots []time.Time
	for len(slots) < n {
		k := c.next(t)
		g, answer := w.enter(k, "p")
		if g == nil {
			t.Fatalf("%v came, and the gate says %q", k, answer)
		}
		if g.Ahead > 60*time.Millisecond {
			t.Errorf("the ticket of %s came %v before its slot", g.ID, g.Ahead)
		}
		w.finish(g, queue.Finish{Ending: queue.EndOK})
		slots = append(slots, g.Slot)
	}
	for i := 1; i < n; i++ {
		if gap := slots[i].Sub(slots[i-1]); gap < 50*time.Millisecond {
			t.Errorf("slots %d and %d are %v apart", i, i+1, gap)
		}
	}
	return slots[n-1].Sub(slots[0])
}

// A scheduler that would sleep for an hour is woken by what makes a job leave earlier.
func TestSchedulerWakes(t *testing.T) {
	w := on(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second), MaxInFlight: 1})
	w.pool("p", 2)
	c := newCarrier(0)
	asleep := make(chan struct{}, 1000)
	schedule(t, w, c, SchedulerConfig{Poll: time.Hour, OnRelease: func(time.Duration, int) { asleep <- struct{}{} }})
	<-asleep

	w.offers("a", 1) // an enqueue
	g, _ := w.enter(c.next(t), "p")
	w.offer(Spec{Tenant: "a", ID: "a2"})
	w.finish(g, queue.Finish{Ending: queue.EndOK}) // a place among those in flight
	g, _ = w.enter(c.next(t), "p")
	w.must(w.admin.Pause(t.Context(), "a", 0))
	w.offer(Spec{Tenant: "a", ID: "a3"})
	w.finish(g, queue.Finish{Ending: queue.EndOK})
	w.must(w.admin.Resume(t.Context(), "a")) // the end of a pause
	g, _ = w.enter(c.next(t), "p")
	w.pool("p", 0)
	w.offer(Spec{Tenant: "b", ID: "b1"})
	w.pool("p", 2) // a place of a worker
	if k := c.next(t); k.ID != "b1" {
		t.Errorf("%v came, want b1", k)
	}
	w.offer(Spec{Tenant: "a", ID: "soon", Delay: 50 * time.Millisecond}) // an instant
	w.finish(g, queue.Finish{Ending: queue.EndOK})
	if k := c.next(t); k.ID != "soon" {
		t.Errorf("%v came, want soon", k)
	}
}

// Tickets that could not be carried go back after their time, in order.
func TestDispatchThatFails(t *testing.T) {
	w := on(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.pool("p", 10)
	var specs []Spec
	for _, id := range []string{"c", "a", "d", "b"} {
		specs = append(specs, Spec{Tenant: "a", ID: id, Type: "x"})
	}
	w.client.OfferMany(t.Context(), specs)
	c := newCarrier(1)
	// When all have come the scheduler must not look again, or it would find them lost again as
	// soon as their time is over.
	c.most, c.goOn = len(specs), make(chan struct{})
	schedule(t, w, c, SchedulerConfig{Poll: 20 * time.Millisecond, TicketTTL: 200 * time.Millisecond})
	defer close(c.goOn)
	var got []string
	for range specs {
		k := c.next(t)
		if k.Release != 2 {
			t.Errorf("%v came, want its second release", k)
		}
		got = append(got, k.ID)
	}
	if !slices.Equal(got, []string{"c", "a", "d", "b"}) {
		t.Errorf("came back as %v", got)
	}
	a, err := w.admin.Tenant(t.Context(), "a")
	w.must(err)
	if a.Counters.LostTickets != 4 || a.Counters.Started != 0 {
		t.Errorf("counted %+v", a.Counters)
	}
}

func TestSchedulerStartAndStop(t *testing.T) {
	w := on(t, redistest.Open(t))
	s, err := NewScheduler(w.rdb, w.q.Downstream, newCarrier(0), SchedulerConfig{})
	w.must(err)
	s.Stop() // before Start, which then fails: whoever stops need not know how far the start has come
	if s.Start(t.Context()) == nil {
		t.Error("it was started after Stop")
	}
	s, err = NewScheduler(w.rdb, w.q.Downstream, newCarrier(0), SchedulerConfig{})
	w.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	w.must(s.Start(ctx))
	if s.Start(ctx) == nil {
		t.Error("it was started twice")
	}
	cancel()
	<-s.done // the context's end is enough: nothing is left that Stop would have to close
	s.Stop()
	s.Stop()
	if _, err := NewScheduler(w.rdb, "a}b", nil, SchedulerConfig{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a wrong name: %v", err)
	}
}

// A scheduler outlives its Redis: it goes on when Redis is back.
func TestSchedulerOutlivesRedis(t *testing.T) {
	server := redistest.Start(t, redistest.AOF(), redistest.Acknowledged())
	w := on(t, server.Client())
	w.set("a", Policy{Rate: rate(100, time.Second)})
	w.pool("p", 2)
	c := newCarrier(0)
	schedule(t, w, c, SchedulerConfig{Poll: 40 * time.Millisecond})
	w.offers("a", 1)
	c.next(t)
	server.Kill()
	time.Sleep(100 * time.Millisecond)
	server.Restart()
	w.offer(Spec{Tenant: "a", ID: "after"})
	for c.next(t).ID != "after" {
	}
}

// What is too much for one call is done at once: a scheduler that would sleep for an hour forgets
// all tenants that are long gone.
func TestSchedulerGoesOn(t *testing.T) {
	w := on(t, redistest.Open(t))
	var gone []redis.Z
	for i := range 500 {
		gone = append(gone, redis.Z{Score: 1, Member: fmt.Sprint("gone", i)})
	}
	w.must(w.rdb.ZAdd(t.Context(), w.q.TenantsKey(), gone...).Err())
	c := newCarrier(0)
	calls := make(chan struct{}, 1000)
	schedule(t, w, c, SchedulerConfig{Poll: time.Hour, OnRelease: func(time.Duration, int) { calls <- struct{}{} }})
	for ctx := withTimeout(t); ; {
		left, err := w.rdb.ZCard(ctx, w.q.TenantsKey()).Result()
		w.must(err)
		if left == 0 {
			return
		}
		select {
		case <-calls:
		case <-ctx.Done():
			t.Fatalf("%d tenants are left, and it sleeps", left)
		}
	}
}
