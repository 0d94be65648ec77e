package policing

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/breaker"
)

func TestGuardTellsErrorsApart(t *testing.T) {
	ctx := t.Context()
	fails := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	g := guard{deadline: time.Minute}
	for range 2 * breaker.After {
		if err := g.do(ctx, fails(buckets.ErrKey)); !errors.Is(err, buckets.ErrKey) {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(ctx)
		err := g.do(gone, func(context.Context) error { cancel(); return buckets.ErrStore })
		if !errors.Is(err, context.Canceled) || errors.Is(err, buckets.ErrStore) {
			t.Fatalf("a caller that went away: %v", err)
		}
	}
	if g.open() {
		t.Error("errors that are not the store's opened the breaker")
	}
	for range breaker.After {
		hurry, cancel := context.WithTimeout(ctx, time.Nanosecond)
		<-hurry.Done()
		if err := g.do(hurry, fails(buckets.ErrStore)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("too late before it began: %v", err)
		}
		cancel()
		if err := g.do(ctx, fails(buckets.ErrStore)); !errors.Is(err, buckets.ErrStore) {
			t.Fatal(err)
		}
	}
	called := false
	err := g.do(ctx, func(context.Context) error { called = true; return nil })
	if called || !errors.Is(err, buckets.ErrStore) || !g.open() || g.retryAfter() > g.deadline {
		t.Errorf("open: called %v, %v, retry after %v", called, err, g.retryAfter())
	}
}
