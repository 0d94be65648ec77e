package workers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/internal/crashpoint"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/shaper"
)

// start is one start of a job, from the grant of its slot until its end is recorded.
type start struct {
	grant *queue.Grant
	asked time.Time // before the call that granted the slot
	in    window    // when the slot can be used
	end   context.CancelCauseFunc
	ctx   context.Context

	// Until the slot; ends when the pool stops, or when recall says that the slot must not be used.
	wait   context.Context
	recall context.CancelFunc

	begun atomic.Bool // the handler has begun, or is about to at this instant

	// Its owner in Redis is about to change, so a beat that finds no lease means nothing; guarded
	// by Pool.mu.
	changing bool
}

// ticket is asynq's handler. It returns nil whatever becomes of the job: asynq must never retry
// one.
func (p *Pool) ticket(_ context.Context, task *asynq.Task) error {
	t, err := queue.ParseTicket(string(task.Payload()))
	if err != nil {
		p.log.Error("ticket cannot be read", "err", err)
		return nil
	}
	// asynq frees a worker's place when its own lease of a ticket ends (after 30 s without Redis),
	// even though the handler still runs.
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-p.hold.Done(): // draining
	}
	p.mu.Lock()
	draining := p.draining
	if !draining {
		p.idle.Add(1)
	}
	p.mu.Unlock()
	if draining {
		p.giveBack(t)
		return nil
	}
	defer p.idle.Done()
	p.chain(t)
	return nil
}

// chain runs the job of a ticket, and then, for a while, the jobs that it is given when it finishes
// one.
func (p *Pool) chain(t queue.Ticket) {
	place := p.stock.take(p.hold)
	defer func() { p.stock.put(place) }()
	if !p.warm(place) {
		p.giveBack(t)
		return
	}
	until := time.Now().Add(p.cfg.ChainFor)
	s := p.enter(t)
	for s != nil {
		s = p.run(s, place, time.Now().Before(until))
	}
}

// warm makes a place ready, within limits: what cannot be made ready soon starts as it is. It is
// false if the pool stops meanwhile. It comes before a slot is asked for: a slot that was granted
// and missed costs an interval, and one that is asked for later only the time in between. If it
// keeps taking time, tickets come earlier by as much.
func (p *Pool) warm(place Place) bool {
	if place == nil {
		return true
	}
	if place.Ready() {
		p.gate.Warm.Note(0)
		return true
	}
	ctx, cancel := context.WithTimeout(p.hold, warmFor)
	defer cancel()
	begun := time.Now()
	place.Warm(ctx)
	if place.Ready() { // else it was not worth the while
		p.gate.Warm.Note(time.Since(begun))
	}
	return p.hold.Err() == nil
}

// giveBack returns a ticket's job to its bucket; if that fails, the ticket's time ends by itself.
func (p *Pool) giveBack(t queue.Ticket) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := p.gate.GiveBack(ctx, t); err != nil {
		p.log.Warn("ticket could not be given back", "tenant", t.Tenant, "job", t.ID, "err", err)
	}
}

// enter asks for a slot. It asks again, under the same token, while the answer is an error: the
// slot may have been granted, and only an answer tells.
func (p *Pool) enter(t queue.Ticket) *start {
	token := queue.NewToken(p.id)
	var s *start
	p.insist(p.hold, "ask for a slot", func(ctx context.Context) error {
		asked := time.Now()
		grant, why, err := p.gate.Enter(ctx, t, token)
		p.asked(asked, err)
		if grant == nil {
			if err == nil {
				p.cfg.Metrics.refusedTicket(why)
			}
			return err
		}
		s = p.granted(grant, asked, err)
		return nil
	})
	return s
}

// asked notes how long the gate took to answer.
func (p *Pool) asked(at time.Time, err error) {
	p.cfg.Metrics.roundTrip("gate", at)
	if err == nil {
		p.gate.Trip.Note(time.Since(at))
	}
}

// granted enters a start into the books of the pool, so that its lease is kept up. err says that
// its job cannot be read.
func (p *Pool) granted(g *queue.Grant, asked time.Time, err error) *start {
	p.cfg.Metrics.granted(g)
	s := &start{grant: g, asked: asked, in: p.clock.window(g.Slot, g.Ahead, g.Tolerance, asked, time.Now())}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.wait, s.recall = context.WithCancel(p.hold)
	p.mu.Lock()
	p.running[g.Token] = s
	p.pauses.check(s)
	p.mu.Unlock()
	if err != nil {
		p.log.Error("job cannot be read", "tenant", g.Tenant, "job", g.ID, "err", err)
		return p.finish(s, queue.Finish{Ending: queue.EndDead, Text: clean(err.Error()), Began: queue.NeverBegan})
	}
	return s
}

func (p *Pool) forget(s *start) {
	p.mu.Lock()
	delete(p.running, s.grant.Token)
	p.mu.Unlock()
	s.recall()
	s.end(nil)
}

// ended ends the context of the start that a token owns.
func (p *Pool) ended(token string, cause error) {
	p.mu.Lock()
	s := p.running[token]
	p.mu.Unlock()
	if s != nil {
		s.end(cause)
	}
}

// lost ends a start whose lease ended.
func (p *Pool) lost(g *queue.Grant) {
	p.mu.Lock()
	s := p.running[g.Token]
	lost := s != nil && !s.changing // else it ended, or got another slot, between the beat and its answer
	p.mu.Unlock()
	if lost {
		p.log.Warn("lease lost", "tenant", g.Tenant, "job", g.ID, "attempt", g.Attempt)
		p.cfg.Metrics.leaseLost()
		p.ended(g.Token, shaper.ErrLeaseLost)
	}
}

// run runs the handler in the slot of s, and reports. It returns the next start, if it was given
// one.
func (p *Pool) run(s *start, place Place, more bool) *start {
	f, started := p.inSlot(s, place)
	if !started {
		return nil
	}
	g := s.grant
	if more && f.Ending != queue.EndBack && p.hold.Err() == nil && (place == nil || place.Ready()) {
		f.Next = queue.NewToken(p.id)
	}
	if f.Ending == queue.EndError || f.Ending == queue.EndUncharged || f.Ending == queue.EndDead {
		p.log.Info("attempt failed", "tenant", g.Tenant, "job", g.ID, "attempt", g.Attempt, "err", f.Text)
	}
	return p.finish(s, f)
}

// maxMissed is how many slots in a row a start may miss before its job goes back: by then the round
// trip to Redis is longer than the tolerance, and asking on would only burn slots.
const maxMissed = 5

// inSlot runs the handler in the slot of s, or in another one if that was missed. started is false
// if there was no start; then the job is off the books.
func (p *Pool) inSlot(s *start, place Place) (f queue.Finish, started bool) {
	for missed := 0; ; missed++ {
		slot := &Slot{start: s, missed: missed}
		f := p.handle(s, place, slot)
		switch slot.use {
		case hasStarted:
			p.cfg.Metrics.started(slot)
			return f, true
		case calledOff:
			p.finish(s, queue.Finish{Ending: queue.EndBack, Began: queue.NeverBegan})
			return f, false
		}
		p.cfg.Metrics.missedSlot()
		if missed == maxMissed {
			p.cfg.Metrics.tooLate()
			if jobs, ok := p.tooLate.Note(time.Now()); ok { // each job comes here again and again while it lasts
				p.log.Warn("tolerance too small for this Redis: job goes back",
					"missed", missed+1, "late", slot.late, "tolerance", s.grant.Tolerance, "jobs", jobs)
			}
			p.finish(s, queue.Finish{Ending: queue.EndBack, Began: queue.NeverBegan})
			return f, false
		}
		if !p.again(s) {
			return f, false
		}
	}
}

// again gets another slot for s.
func (p *Pool) again(s *start) bool {
	token := queue.NewToken(p.id)
	var grant *queue.Grant
	var asked time.Time
	p.mu.Lock()
	s.changing = true
	p.mu.Unlock()
	done := p.insist(p.hold, "ask for another slot", func(ctx context.Context) error {
		asked = time.Now()
		g, why, err := p.gate.Again(ctx, s.grant, token)
		p.asked(asked, err)
		if g == nil {
			if err == nil {
				p.cfg.Metrics.refusedTicket(why)
			}
			return err
		}
		grant = g
		return nil
	})
	if grant == nil {
		if !done { // stopping, and nobody knows which token owns it: its lease ends by itself
			p.log.Warn("job left to its lease", "tenant", s.grant.Tenant, "job", s.grant.ID)
		}
		p.forget(s)
		return false
	}
	in := p.clock.window(grant.Slot, grant.Ahead, grant.Tolerance, asked, time.Now())
	p.cfg.Metrics.granted(grant)
	p.mu.Lock()
	delete(p.running, s.grant.Token)
	s.grant, s.asked, s.in, s.changing = grant, asked, in, false
	p.running[token] = s
	p.pauses.check(s)
	p.mu.Unlock()
	return true
}

// handle makes a start ready, has it wait for its slot, runs the handler, waits for its return, even
// beyond the end of its context (a handler keeps its place as long as it runs), and returns what to
// report. slot says what became of it. A panic and runtime.Goexit are errors.
func (p *Pool) handle(s *start, place Place, slot *Slot) (f queue.Finish) {
	g := s.grant
	ctx, cancel := context.WithDeadlineCause(s.ctx, s.in.from.Add(g.Timeout), errTimeout)
	defer cancel()
	ctx = WithJob(ctx, Info{ID: g.ID, Tenant: g.Tenant, Downstream: p.q.Downstream, Type: g.Type,
		Attempt: g.Attempt, Slot: g.Slot, Timeout: g.Timeout})
	base, fault := p.cfg.base()
	ctx, stop := endsWith(ctx, base)
	defer stop()
	// This runs in a goroutine of asynq's, so that Goexit ends only the handler. That goroutine
	// also does the sleeping, so that no switch follows the sleep.
	err := p.tasks.run(ctx, base, g, func(ctx context.Context, task *asynq.Task) {
		lost := fmt.Errorf("handler ended its goroutine: %w", errHandler) // unless something else becomes of it
		defer func() {
			if r := recover(); r != nil {
				lost = &panicError{r, p.tasks.panicked}
				p.log.Error("handler panicked", "tenant", g.Tenant, "job", g.ID, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			}
			if slot.Wait(context.Background()) == nil && f.Ending == "" {
				f = outcome(ctx, g, lost)
				p.consult(ctx, g, task, lost, &f)
			}
		}()
		err := fault
		if err == nil && place != nil {
			err = place.Start(ctx, task, slot)
		}
		if slot.Wait(context.Background()) != nil {
			return
		}
		if err == nil && place == nil {
			err = p.handler.ProcessTask(ctx, task)
		}
		crashpoint.Hit("handler.after")
		// outcome belongs in here: what an error's methods do is the handler's doing too, and those
		// of a nil *MyError panic.
		f = outcome(ctx, g, err)
		p.consult(ctx, g, task, err, &f)
	})
	if err != nil {
		p.log.Warn("start called off", "tenant", g.Tenant, "job", g.ID, "err", err)
		slot.use = calledOff
		return f
	}
	if slot.use == hasStarted {
		f.Began = queue.BeganAfter(slot.began.Sub(s.in.from))
		p.cfg.Metrics.handled(time.Since(slot.began))
	}
	return f
}

var errHandler = errors.New("fault in the handler")

// finish reports how a start ended until Redis has recorded it, and returns the next start, if it
// was given one.
func (p *Pool) finish(s *start, f queue.Finish) *start {
	defer p.forget(s)
	p.mu.Lock()
	s.changing = true
	p.mu.Unlock()
	var next *start
	p.insist(p.work, "finish job", func(ctx context.Context) error {
		asked := time.Now()
		end, err := p.gate.Finish(ctx, s.grant, f)
		p.cfg.Metrics.roundTrip("finish", asked)
		if err != nil && end.Next == nil {
			return err
		}
		p.cfg.Metrics.finished(end.Became)
		p.tellThrottles(s.grant.Tenant, f, end)
		if end.Became == "stale" {
			p.log.Warn("job ended, but somebody else owns it", "tenant", s.grant.Tenant, "job", s.grant.ID, "attempt", s.grant.Attempt)
		}
		if end.Next != nil {
			next = p.granted(end.Next, asked, err)
		}
		return nil
	})
	return next
}

// insist repeats a call, which must bear repeating, until it succeeds; false if ctx ended first.
func (p *Pool) insist(ctx context.Context, doing string, call func(context.Context) error) bool {
	pause := again.Pause{First: 20 * time.Millisecond, Most: time.Second}
	for failed := false; ; failed = true {
		err := call(p.work)
		if err == nil {
			return true
		}
		if !failed {
			p.log.Error("Redis failed, trying again", "doing", doing, "err", err)
		}
		if !pause.Wait(ctx, 0) {
			return false
		}
	}
}
