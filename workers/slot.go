package workers

import (
	"context"
	"errors"
	"time"

	"github.com/jobshaper/jobshaper/internal/crashpoint"
	"github.com/jobshaper/jobshaper/internal/precise"
)

// Errors of Slot.Wait. The start does not happen, or not in this slot: a Place lets go of what it
// made ready and returns, and what it returns does not matter.
var (
	ErrCalledOff  = errors.New("start called off")                       // the pool stops, the tenant was paused, or the job was cancelled
	ErrSlotMissed = errors.New("slot missed by more than the tolerance") // another one will be asked for
)

// slotUse is what became of a slot. If it was called off because its job was cancelled, the job's
// end is recorded when the job goes back.
type slotUse int

const (
	undecided  slotUse = iota
	missedSlot         // it passed by more than the tolerance
	calledOff          // the pool stops, the tenant was paused, or the job was cancelled
	hasStarted
)

func (u slotUse) err() error {
	switch u {
	case missedSlot:
		return ErrSlotMissed
	case calledOff:
		return ErrCalledOff
	}
	return nil
}

// Slot is the slot of one start, from its grant on. It is not safe for concurrent use.
type Slot struct {
	start  *start
	missed int // slots before this one

	use     slotUse
	began   time.Time // if hasStarted
	late    time.Duration
	unready bool
}

// Wait blocks until the slot, and returns nil if the start is to happen now: what the caller does
// next is the first that the downstream sees of it. If it is not to happen, Wait returns
// ErrCalledOff or ErrSlotMissed. When ctx ends first, Wait returns its cause and may be called
// again. Once it was decided, Wait returns the same at once.
//
// The wait is anchored on both ends of the calls that grant slots, see redisClock.
func (s *Slot) Wait(ctx context.Context) error {
	if s.use != undecided {
		return s.use.err()
	}
	both, stop := endsWith(s.start.wait, ctx)
	_ = precise.SleepUntil(both, s.start.in.from) // the end of both says less than those of the two
	stop()
	switch {
	case s.start.wait.Err() != nil || s.start.ctx.Err() != nil:
		s.use = calledOff
		return ErrCalledOff
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	// Nothing comes between this look at the clock and the start, where a busy machine could lose
	// time.
	s.began = time.Now()
	if s.late = s.began.Sub(s.start.in.least); s.start.in.over(s.began) {
		s.use = missedSlot
		return ErrSlotMissed
	}
	s.use = hasStarted
	s.start.begun.Store(true)
	crashpoint.Hit("handler.before")
	return nil
}

// Ahead returns a context for making the start ready. It ends when the start is called off and when
// the slot cannot be used any more; for a start that has missed a slot before, at the slot itself.
// The caller ends it.
func (s *Slot) Ahead() (context.Context, context.CancelFunc) {
	over := s.start.in.until
	if s.missed > 0 {
		over = s.start.in.from
	}
	called, stop := endsWith(s.start.wait, s.start.ctx)
	ctx, cancel := context.WithDeadline(called, over)
	return ctx, func() { cancel(); stop() }
}

// Sent says at which instant the first of a start left, if that is later than when Wait returned.
// That is what the start is judged by then.
func (s *Slot) Sent(at time.Time) {
	if s.use == hasStarted && at.After(s.began) {
		s.late += at.Sub(s.began)
		s.began = at
	}
}

// Unready says that the start was not ready at its slot, so that the downstream sees it later. It is
// counted.
func (s *Slot) Unready() { s.unready = true }
