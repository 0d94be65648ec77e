package shaper

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/usable"
)

// Dispatcher carries tickets to workers. A ticket is a short line of text, different from every
// other ticket of its downstream; a pool takes it as it is. A Dispatcher that cannot carry a ticket
// returns an error; tickets may be lost or doubled all the same. workers.NewDispatcher returns one
// on asynq.
type Dispatcher interface {
	Dispatch(ctx context.Context, tickets []string) error
}

// Backlogged is a Dispatcher that can tell what lies in its hands. While that does not reach
// workers, a Scheduler gives it no more, see Backlog.Why.
type Backlogged interface {
	Backlog(context.Context) (Backlog, error)
}

// Backlog is what a Dispatcher has in its hands.
type Backlog struct {
	Tickets   int      // that wait for a worker
	Stuck     string   // what keeps workers from taking them; "" if nothing does that is known
	Strangers []string // who takes them, and is no pool of the downstream; they only keep tickets from workers
}

// Why says why tickets do not reach workers, "" if they do: something keeps them, or there are so
// many that workers cannot be taking them.
func (b Backlog) Why() string {
	if b.Stuck == "" && b.Tickets >= mostCarried {
		return "workers take too few"
	}
	return b.Stuck
}

// Scheduler releases the tickets of one downstream when their time has come, and brings back what
// was lost: jobs whose tickets nobody used, or whose worker fell silent. Any number of schedulers
// may run for a downstream, in any number of processes; none is the leader, and the rate does not
// depend on how many there are.
//
// It sleeps exactly until the next ticket is due, is woken by whatever makes one due earlier, and
// looks for itself once every Poll. It also compares the books of the downstream, and mends them,
// see BookFault.
type Scheduler struct {
	q          queue.Queue
	dispatcher Dispatcher
	opts       SchedulerConfig
	wake       chan struct{}
	trip       queue.Trip
	stuck      atomic.Bool // tickets do not reach workers, see watch

	mu      sync.Mutex // held by Start and Stop, guards what follows
	stopped bool
	cancel  context.CancelFunc
	done    chan struct{} // nil before Start
}

// SchedulerConfig is set once for a Scheduler. The zero value serves.
type SchedulerConfig struct {
	Poll      time.Duration // the longest sleep; default 1s
	TicketTTL time.Duration // a job whose ticket did not come to the gate by then goes back to the front; default 2s
	Logger    *slog.Logger  // default slog.Default()
	OnRelease func(RTT time.Duration, tickets int)
	Books     time.Duration     // how often the books are compared, and mended; default 1m
	OnMended  func([]BookFault) // what was mended
	OnBacklog func(Backlog)     // what a Backlogged dispatcher told, once every Poll
}

// mostCarried is how many tickets may lie in a Dispatcher's hands before it is given no more: more
// than workers leave there while they take any, even far away ones with all their places free; and
// few enough for Redis' memory.
const mostCarried = 2000

// releaseLimit is how many tickets one call releases at most.
const releaseLimit = queue.Batch

// NewScheduler returns a Scheduler that has not started.
func NewScheduler(rdb redis.UniversalClient, downstream string, d Dispatcher, opts SchedulerConfig) (*Scheduler, error) {
	q, err := newQueue(rdb, downstream)
	if err != nil {
		return nil, err
	}
	switch {
	case usable.Nil(d):
		return nil, &FieldError{"dispatcher", "nil", "a Dispatcher, such as that of package workers"}
	case opts.Poll < 0:
		return nil, &FieldError{"poll", opts.Poll.String(), "more than 0, or 0 for the default"}
	case opts.TicketTTL < 0:
		return nil, &FieldError{"ticket_ttl", opts.TicketTTL.String(), "more than 0, or 0 for the default"}
	}
	opts.Poll = cmp.Or(opts.Poll, time.Second)
	opts.TicketTTL = cmp.Or(opts.TicketTTL, 2*time.Second)
	if opts.Books <= 0 {
		opts.Books = time.Minute
	}
	opts.Logger = cmp.Or(opts.Logger, slog.Default()).With("downstream", downstream)
	return &Scheduler{q: q, dispatcher: d, opts: opts, wake: make(chan struct{}, 1)}, nil
}

// Start begins to release tickets, and returns. The scheduler runs until ctx ends or Stop is
// called. Both end it the same way, and Stop waits for the end either way. Start returns an error
// if the scheduler was started or stopped before.
func (s *Scheduler) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done != nil || s.stopped {
		return fmt.Errorf("scheduler of %s was started or stopped before", s.q.Downstream)
	}
	l := queue.NewListener(s.q, func(sig queue.Signal) {
		if sig.Kind == 'w' {
			s.Wake()
		}
	})
	ctx, cancel := context.WithCancel(ctx)
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		defer l.Close()
		var books sync.WaitGroup
		defer books.Wait()
		books.Go(func() { s.keepBooks(ctx) })
		books.Go(func() { s.watch(ctx) })
		s.loop(ctx)
	}()
	return nil
}

// Stop ends the scheduler and waits for it. Tickets that are out stay out. It may be called twice,
// or before Start, which then fails.
func (s *Scheduler) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.done == nil {
		return
	}
	s.cancel()
	<-s.done
}

// Wake makes the scheduler look around now.
func (s *Scheduler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// shortest is the shortest sleep after a call that released nothing, so that the loop does not spin
// where an interval is shorter than the lead.
const shortest = time.Millisecond

// stopWithin is how long Stop waits for a call that is under way. If the call were cut off, it
// might have released tickets that nobody dispatches, and their jobs would wait for TicketTTL.
const stopWithin = time.Second

func (s *Scheduler) loop(ctx context.Context) {
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopWithin, cancel) })()
	tidied := time.Time{}
	failing := false
	for ctx.Err() == nil {
		tidy := time.Since(tidied) > time.Minute
		if tidy {
			tidied = time.Now()
		}
		released, wait, more, err := s.runOnce(calls, tidy)
		if tidy && more {
			tidied = time.Time{} // perhaps there is more to tidy, too
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				s.opts.Logger.Error("release failed, trying again", "err", err)
			}
			failing, wait = true, s.opts.Poll/4
		case failing:
			failing = false
			s.opts.Logger.Info("release works again")
		case released == 0 && !more:
			wait = max(wait, shortest)
		}
		s.sleep(ctx, min(wait, s.opts.Poll))
	}
}

func (s *Scheduler) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-s.wake:
	case <-ctx.Done():
	}
}

// runOnce releases once and dispatches what was released. wait is how long nothing more will be
// due; more says that there is work now, which was too much for one call.
func (s *Scheduler) runOnce(ctx context.Context, tidy bool) (released int, wait time.Duration, more bool, err error) {
	limit := releaseLimit
	if s.stuck.Load() {
		limit = 0 // what was lost comes back all the same
	}
	begun := time.Now()
	r, err := s.q.Release(ctx, limit, s.opts.TicketTTL, tidy, s.trip.Takes())
	if err != nil {
		return 0, 0, false, err
	}
	replied := time.Now()
	s.trip.Note(replied.Sub(begun))
	if r.Suspects+r.Blamed+r.Dead > 0 {
		s.opts.Logger.Warn("a worker fell silent while it ran jobs", "suspects", r.Suspects, "blamed", r.Blamed, "dead", r.Dead)
	}
	switch {
	case limit == 0 || !r.More && r.Wait < 0:
		wait = s.opts.Poll
	case !r.More:
		wait = r.Wait
	}
	var tickets []string
	for _, k := range r.Tickets {
		tickets = append(tickets, k.String())
	}
	if s.opts.OnRelease != nil {
		s.opts.OnRelease(replied.Sub(begun), len(tickets))
	}
	if len(tickets) > 0 {
		if err := s.dispatcher.Dispatch(ctx, tickets); err != nil {
			// Their jobs go back to the front after TicketTTL.
			return len(tickets), 0, r.More, fmt.Errorf("dispatch %d tickets: %w", len(tickets), err)
		}
	}
	return len(tickets), wait - time.Since(replied), r.More, nil
}

// watch looks at what the Dispatcher has in its hands, once every Poll, until ctx ends. It says in
// the log what is the matter when that changes.
func (s *Scheduler) watch(ctx context.Context) {
	d, can := s.dispatcher.(Backlogged)
	if !can {
		return
	}
	before, strangers := "", ""
	for again.Sleep(ctx, s.opts.Poll) {
		b, err := d.Backlog(ctx)
		if err != nil {
			continue // whatever else fails tells of it
		}
		why := b.Why()
		s.stuck.Store(why != "")
		if s.opts.OnBacklog != nil {
			s.opts.OnBacklog(b)
		}
		switch {
		case why != "" && why != before:
			s.opts.Logger.Error("tickets do not reach workers, no more are released until they do", "why", why, "tickets", b.Tickets)
		case why == "" && before != "":
			s.opts.Logger.Info("tickets reach workers again", "tickets", b.Tickets)
			s.Wake()
		}
		before = why
		// Some tickets still reach workers, so they go on being released.
		if now := strings.Join(b.Strangers, ", "); now != strangers {
			if now != "" {
				s.opts.Logger.Error("others take tickets of this downstream, and its jobs wait for lost ones: stop them, or have them serve other asynq queues", "servers", now)
			} else {
				s.opts.Logger.Info("nobody else takes tickets of this downstream any more")
			}
			strangers = now
		}
	}
}
