package api

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/internal/breaker"
	"github.com/jobshaper/jobshaper/shaper"
)

const (
	// storeTimeout is how long a request waits for the store while nothing says that the store is
	// away: longer than a connection that broke silently keeps a call (redisurl.ReadTimeout), to
	// leave time for a second call.
	storeTimeout = 2 * time.Second
	// confirmTimeout is how long a request waits in all where replicas must confirm a job, however
	// long they may take.
	confirmTimeout = 5 * time.Second
	// probeTimeout is how long the store may take to answer a probe that asks whether it is back.
	probeTimeout = time.Second
)

// errSpared is the answer to a request that is not put to a store that is away. It wraps
// shaper.ErrStore.
var errSpared = &sparedError{}

type sparedError struct{}

func (*sparedError) Error() string {
	return "the store does not answer, so it was not asked: nothing has changed, try again"
}
func (*sparedError) Unwrap() error { return shaper.ErrStore }

// store is the way to the store of one downstream: a time limit on each call, and a breaker. While
// the store is away, requests are answered at once, and a goroutine asks whether the store is back:
// a request that asked would wait in vain, and if it was an offer, it might be accepted although
// its producer was told that nobody knows.
type store struct {
	client     Client
	downstream string
	timeout    time.Duration
	probes     *probes
	log        *slog.Logger
	breaker    breaker.Breaker
}

// offer offers one job.
func (s *store) offer(ctx context.Context, spec shaper.Spec) (shaper.Result, error) {
	var result shaper.Result
	err := s.do(ctx, s.timeout, func(ctx context.Context) error {
		out := s.client.OfferMany(ctx, []shaper.Spec{spec})[0]
		result = out.Result
		return out.Err
	})
	return result, err
}

// find looks a job up.
func (s *store) find(ctx context.Context, tenant, id string) (job shaper.Job, err error) {
	err = s.do(ctx, storeTimeout, func(ctx context.Context) error {
		var err error
		job, err = s.client.Find(ctx, tenant, id)
		return err
	})
	return job, err
}

// away reports whether requests are being spared.
func (s *store) away() bool {
	_, closed := s.breaker.State(time.Now())
	return !closed
}

// do makes a call for a request. It returns the error of the call, or errSpared.
func (s *store) do(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	if s.away() { // only a probe ends that
		return errSpared
	}
	pass, ok := s.breaker.Enter(time.Now())
	if !ok {
		return errSpared
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := call(limited)
	switch {
	case answered(err):
		s.breaker.Succeeded(pass)
	case ctx.Err() != nil || !saysAway(err): // the client has gone, or asked for something wrong
		s.breaker.Returned(pass)
	case s.breaker.Failed(pass, time.Now()):
		s.log.Warn("the store does not answer: HTTP requests are refused at once until it does", "downstream", s.downstream, "err", err)
		s.probes.start(s.probe)
	}
	return err
}

// answered reports whether the store has done what it was asked, whatever its replicas have.
func answered(err error) bool {
	var alone *shaper.UnconfirmedError
	return err == nil || errors.Is(err, shaper.ErrNotFound) || errors.As(err, &alone)
}

// saysAway reports whether an error says that the store is away. A replica that refuses to be
// written to is not: it answers at once, and the probe too.
func saysAway(err error) bool {
	return errors.Is(err, shaper.ErrStore) && breaker.Away(err) && !redis.HasErrorPrefix(err, "READONLY")
}

// probe asks until the store answers, or ctx ends.
func (s *store) probe(ctx context.Context) {
	since := time.Now()
	for {
		wait, closed := s.breaker.State(time.Now())
		if closed {
			s.log.Info("the store answers again", "downstream", s.downstream, "away", time.Since(since).Round(time.Millisecond))
			return
		}
		if !again.Sleep(ctx, max(wait, time.Millisecond)) {
			return
		}
		s.probeOnce(ctx)
	}
}

// probeOnce looks up a job that is not there, unless the breaker says that it is too early.
func (s *store) probeOnce(ctx context.Context) {
	pass, ok := s.breaker.Enter(time.Now())
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if _, err := s.client.Find(ctx, shaper.DefaultName, "is-it-back"); saysAway(err) {
		s.breaker.Failed(pass, time.Now())
		return
	}
	s.breaker.Succeeded(pass)
}

// probes are the goroutines of the stores that are away.
type probes struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool // guarded by mu
	running sync.WaitGroup
}

func newProbes() *probes {
	p := &probes{}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *probes) start(probe func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.running.Go(func() { probe(p.ctx) })
	}
}

// stop ends them and waits. It may be called twice.
func (p *probes) stop() {
	p.cancel()
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.running.Wait()
}
