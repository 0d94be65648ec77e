package workers

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

// prepared is a Preparer for tests. Its start stands for Place.Start.
type prepared struct {
	start func(ctx context.Context, slot *Slot) error
	cold  bool          // a place is ready for one start only, after Warm
	takes time.Duration // of Warm

	mu     sync.Mutex
	did    []string
	places int // that are not closed
}

func (p *prepared) ProcessTask(context.Context, *asynq.Task) error {
	return errors.New("not by way of its place")
}

func (p *prepared) NewPlace() Place { return &preparedPlace{prepared: p} }

// note notes what was done with a place.
func (p *prepared) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.did = append(p.did, what)
}

type preparedPlace struct {
	*prepared
	warm bool // guarded by mu
}

func (p *preparedPlace) Warm(context.Context) {
	p.note("warm")
	time.Sleep(p.takes)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.warm {
		p.warm = true
		p.places++
	}
}

func (p *preparedPlace) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.warm
}

func (p *preparedPlace) Start(ctx context.Context, _ *asynq.Task, slot *Slot) error {
	p.note("start")
	if p.cold {
		p.Close()
	}
	return p.start(ctx, slot)
}

func (p *preparedPlace) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.warm {
		p.warm = false
		p.places--
	}
}

func newPreparedBench(t *testing.T, h *prepared) *bench {
	b := newBench(t, func(context.Context, *asynq.Task) error { return nil }, Config{Concurrency: 4})
	b.pool.handler, b.pool.stock.from = h, h
	b.policy(shaper.Policy{Rate: buckets.PerSecond(50), MaxAttempts: 1})
	return b.start()
}

// A start is called before its slot, and whatever it does there, it begins in its slot or not at all.
func TestPreparedStarts(t *testing.T) {
	for name, tc := range map[string]struct {
		start func(ctx context.Context, slot *Slot) error
		state shaper.State
		error string
	}{
		"waits":                 {func(ctx context.Context, slot *Slot) error { return slot.Wait(ctx) }, shaper.StateDone, ""},
		"waits twice":           {func(ctx context.Context, slot *Slot) error { return errors.Join(slot.Wait(ctx), slot.Wait(ctx)) }, shaper.StateDone, ""},
		"fails before its slot": {func(context.Context, *Slot) error { return errors.New("not to be had") }, shaper.StateDead, "not to be had"},
		"fails in its slot": {func(ctx context.Context, slot *Slot) error {
			return errors.Join(slot.Wait(ctx), errors.New("not to be had"))
		}, shaper.StateDead, "not to be had"},
		"panics before its slot": {func(context.Context, *Slot) error { panic("boom") }, shaper.StateDead, "boom"},
		"ends its goroutine":     {func(context.Context, *Slot) error { runtime.Goexit(); return nil }, shaper.StateDead, "ended its goroutine"},
		"gives up waiting": {func(_ context.Context, slot *Slot) error {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(errors.New("lost what it had"))
			return slot.Wait(ctx)
		}, shaper.StateDead, "lost what it had"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var slots []*Slot
			b := newPreparedBench(t, &prepared{start: func(ctx context.Context, slot *Slot) error {
				mu.Lock()
				slots = append(slots, slot)
				mu.Unlock()
				return tc.start(ctx, slot)
			}})
			ids := []string{b.offer("a", 1), b.offer("a", 2)}
			for _, id := range ids {
				if job := b.wait("a", id); job.State != tc.state || !strings.Contains(job.Error, tc.error) {
					t.Errorf("%s, %q; want %s, %q", job.State, job.Error, tc.state, tc.error)
				}
			}
			b.pool.Stop()
			began := map[time.Time]bool{}
			for _, s := range slots {
				if s.use == hasStarted {
					began[s.began] = true
					if s.began.Before(s.start.in.from) {
						t.Errorf("began %v before its slot", s.start.in.from.Sub(s.began))
					}
				}
			}
			if len(began) != len(ids) {
				t.Errorf("%d starts, want %d", len(began), len(ids))
			}
		})
	}
}

// A place is warm before a slot is asked for, one that is not gets no second job without a ticket,
// and none is left open when the pool has stopped.
func TestPlacesAreWarm(t *testing.T) {
	for name, cold := range map[string]bool{"stay ready": false, "are ready once": true} {
		t.Run(name, func(t *testing.T) {
			h := &prepared{cold: cold, start: func(ctx context.Context, slot *Slot) error { return slot.Wait(ctx) }}
			b := newPreparedBench(t, h)
			for n := range 10 {
				b.offer("a", n)
			}
			for n := range 10 {
				b.wait("a", "a-"+string(rune('0'+n)))
			}
			b.pool.Stop()
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.did[0] != "warm" {
				t.Errorf("%v: the first start found its place cold", h.did)
			}
			warm := len(slices.DeleteFunc(slices.Clone(h.did), func(s string) bool { return s != "warm" }))
			if cold && warm < 10 || !cold && warm > 4 {
				t.Errorf("%v: warmed %d times", h.did, warm)
			}
			if h.places != 0 {
				t.Errorf("%d places are left open", h.places)
			}
		})
	}
}

// Where places are never ready when a ticket comes, tickets come earlier: the pool says that it is
// further away, by what it takes to make one ready. A slow tenant of a far target gets all of its
// rate by that.
func TestColdPlacesAreFarAway(t *testing.T) {
	testenv.Long(t, "waits for a beat")
	h := &prepared{cold: true, takes: 60 * time.Millisecond, start: func(ctx context.Context, slot *Slot) error { return slot.Wait(ctx) }}
	b := newPreparedBench(t, h)
	n := 0
	until(t, "the pool says that it is 20 ms away or more", func() bool {
		n++
		b.wait("a", b.offer("a", n))
		us, err := b.rdb.HGet(t.Context(), "shaper:{d}:pools", b.pool.ID()+":d").Int()
		return err == nil && us >= 20_000
	})
}

// A place that nobody needs any more is closed.
func TestPlacesRest(t *testing.T) {
	h := &prepared{}
	s := &stock{from: h, most: 2}
	a, b := s.take(t.Context()), s.take(t.Context())
	a.Warm(t.Context())
	s.put(a)
	if s.take(t.Context()) != a {
		t.Error("a place that is ready is not used again")
	}
	s.put(a)
	s.drop(s.resting[0])
	if len(s.resting) > 0 || a.Ready() {
		t.Error("its rest is over, and it is open")
	}
	s.close()
	b.Warm(t.Context())
	s.put(b) // its handler outlived the pool
	if b.Ready() || h.places != 0 {
		t.Error("a place came back to a pool that has stopped, and is open")
	}
}

// Where places take longer to become ready than jobs to come, there are more of them, but no more
// than jobs may run.
func TestPlacesBecomeMore(t *testing.T) {
	h := &prepared{}
	s := &stock{from: h, most: 2}
	for range 5 {
		p := s.take(t.Context()) // not ready
		s.mu.Lock()
		n := s.out + len(s.resting)
		s.mu.Unlock()
		if n > s.most {
			t.Errorf("%d places, want at most %d", n, s.most)
		}
		s.put(p)
	}
	s.working.Wait()
	if n := len(s.resting); n != 2 {
		t.Errorf("%d places rest, want 2", n)
	}
	s.close()
	if h.places != 0 {
		t.Errorf("%d places are left open", h.places)
	}
}
