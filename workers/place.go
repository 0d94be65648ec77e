package workers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// Preparer is a handler that can make its starts ready before their slots. Where a Pool is given
// one, it starts jobs by Places, and not by ProcessTask; a handler that wraps another, such as an
// asynq.ServeMux, hides that the other one is a Preparer.
type Preparer interface {
	asynq.Handler
	NewPlace() Place
}

// Place makes starts ready, one after the other. A Pool has one for each job that it runs at a time,
// and uses it from one goroutine at a time.
type Place interface {
	// Warm makes ready what any start will need, such as a connection. It is called before a slot
	// is asked for, and returns once all is ready, cannot be made ready for now, or ctx ends.
	Warm(ctx context.Context)

	// Ready says whether Warm would return at once with all ready. Where it would not, the Pool
	// asks for no slot on behalf of this Place.
	Ready() bool

	// Start runs the job of task as ProcessTask does. It is called as soon as the slot was granted,
	// makes ready what it can, and then lets nothing reach the downstream before slot.Wait has
	// returned nil. If slot.Wait returns an error, it undoes what it made ready, and returns. Where
	// something cannot be made ready, it waits for the slot all the same, and starts as well as it
	// can. A Start that returns without having waited has failed, in its slot.
	Start(ctx context.Context, task *asynq.Task, slot *Slot) error

	// Close lets go of all that is ready, and waits for that. A closed Place can be warmed again.
	Close()
}

// warmFor is the longest that a ticket waits for its place to be made ready. It must leave most of
// a ticket's time.
const warmFor = 500 * time.Millisecond

// restFor is how long a place that is not used stays ready: below the 5 s after which common servers
// close an idle connection.
const restFor = 4 * time.Second

// stock keeps places for jobs to come, at most `most`. One that knows no Preparer has only nil, which
// is fine.
type stock struct {
	from Preparer
	most int

	mu      sync.Mutex
	out     int        // places that were taken, and those that are warmed for later
	resting []*resting // the last one rests shortest
	closed  bool
	working sync.WaitGroup // what closes places whose rest is over, and warms others
}

type resting struct {
	place Place
	over  *time.Timer
}

// take returns a place that is ready, or else the one that has had the longest time to become so, or
// else a new one. nil: there is nothing to make ready. ctx ends when the pool stops.
func (s *stock) take(ctx context.Context) Place {
	if s.from == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.resting) == 0 {
		s.out++
		return s.from.NewPlace()
	}
	for i, r := range slices.Backward(s.resting) {
		if r.place.Ready() {
			return s.wake(i)
		}
	}
	// Places take longer to become ready again than jobs to come: one more is needed.
	if s.out+len(s.resting) < s.most && !s.closed {
		s.out++
		place := s.from.NewPlace()
		s.working.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, warmFor)
			defer cancel()
			place.Warm(ctx)
			s.put(place)
		})
	}
	return s.wake(0)
}

// wake ends the rest of a place. Hold mu.
func (s *stock) wake(i int) Place {
	r := s.resting[i]
	s.resting = slices.Delete(s.resting, i, i+1)
	s.out++
	r.over.Stop()
	return r.place
}

// put has a place rest. It is closed if nobody takes it within restFor.
func (s *stock) put(p Place) {
	if p == nil {
		return
	}
	s.mu.Lock()
	s.out--
	if s.closed { // its handler ran on after the pool's end
		s.mu.Unlock()
		p.Close()
		return
	}
	defer s.mu.Unlock()
	r := &resting{place: p}
	r.over = time.AfterFunc(restFor, func() { s.drop(r) })
	s.resting = append(s.resting, r)
}

// drop closes a place that still rests.
func (s *stock) drop(r *resting) {
	s.mu.Lock()
	i := slices.Index(s.resting, r)
	if i >= 0 {
		s.resting = slices.Delete(s.resting, i, i+1)
		s.working.Add(1)
	}
	s.mu.Unlock()
	if i >= 0 {
		defer s.working.Done()
		r.place.Close()
	}
}

// close closes all places that rest, and has those that are out closed when they come back.
func (s *stock) close() {
	s.mu.Lock()
	s.closed = true
	resting := s.resting
	s.resting = nil
	s.mu.Unlock()
	for _, r := range resting {
		r.over.Stop()
		s.working.Go(r.place.Close)
	}
	s.working.Wait()
}
