package workers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// MaxRetryDelay is the longest that a Config's RetryDelayFunc can have a job wait.
const MaxRetryDelay = 366 * 24 * time.Hour

// base returns what the program wants in a handler's context.
func (c *Config) base() (ctx context.Context, err error) {
	if c.BaseContext == nil {
		return context.Background(), nil
	}
	defer func() {
		if r := recover(); r != nil {
			ctx, err = context.Background(), fmt.Errorf("BaseContext panicked: %v", r)
		}
	}()
	if ctx = c.BaseContext(); ctx == nil {
		return context.Background(), errors.New("BaseContext returned nil: want a context")
	}
	return ctx, nil
}

// endsWith returns a ctx that also ends when other does.
func endsWith(ctx, other context.Context) (context.Context, func()) {
	if other.Done() == nil {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { end(context.Cause(other)) })
	return ctx, func() {
		stop()
		end(nil)
	}
}

// consult tells the program of an error that a handler returned, and lets it say what becomes of
// the job. f is right at every moment, in case one of the calls ends the goroutine.
func (p *Pool) consult(ctx context.Context, g *queue.Grant, task *asynq.Task, err error, f *queue.Finish) {
	if err == nil || f.Ending == queue.EndBack {
		return
	}
	if h := p.cfg.ErrorHandler; h != nil {
		p.guard("ErrorHandler", g, func() { h.HandleError(ctx, task, err) })
	}
	if f.Ending != queue.EndError {
		return
	}
	if delay := p.cfg.RetryDelayFunc; delay != nil {
		p.guard("RetryDelayFunc", g, func() { f.Delay = min(max(delay(g.Charged-1, err, task), 0), MaxRetryDelay) })
	}
	if failure := p.cfg.IsFailure; failure != nil {
		p.guard("IsFailure", g, func() {
			if !failure(err) {
				f.Ending = queue.EndUncharged
			}
		})
	}
}

// guard makes a call that may panic.
func (p *Pool) guard(what string, g *queue.Grant, call func()) {
	defer func() {
		if r := recover(); r != nil {
			p.log.Error(what+" panicked", "tenant", g.Tenant, "job", g.ID, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	call()
}
