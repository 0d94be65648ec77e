package target

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/workers"
)

// NewPlace implements workers.Preparer.
func (t *execTarget) NewPlace() workers.Place { return execPlace{t} }

// execPlace starts commands ahead of their slots. Each is made for one start, since it is told its
// slot, so nothing can be made ready before that is known.
type execPlace struct{ *execTarget }

func (execPlace) Warm(context.Context) {}
func (execPlace) Ready() bool          { return true }
func (execPlace) Close()               {}

// Start implements workers.Place.
func (p execPlace) Start(ctx context.Context, task *asynq.Task, slot *workers.Slot) error {
	r, err := p.prepare(ctx, task)
	if err != nil {
		return err
	}
	if !p.unheld.Load() && holdable(p.path) {
		opened := false
		err := r.do(ctx, func() error {
			err := slot.Wait(ctx)
			opened = err == nil
			return err
		})
		if opened && err == nil {
			return p.outcome(ctx, r, nil)
		}
		if forbids(err) {
			p.unheld.Store(true)
		}
		if r, err = p.prepare(ctx, task); err != nil { // what was started is gone
			return err
		}
	}
	// It was called off, which Wait repeats; or the command cannot be started ahead, and perhaps can be
	// now.
	if err := slot.Wait(ctx); err != nil {
		return err
	}
	slot.Unready()
	return p.outcome(ctx, r, r.do(ctx, nil))
}
