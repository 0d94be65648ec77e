package policing

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

func TestBreaker(t *testing.T) {
	type step struct {
		at   time.Duration
		do   string // enter, succeed, fail, return: of the pass that was given last
		want bool   // of enter
	}
	const ms = time.Millisecond
	for name, steps := range map[string][]step{
		"opens after failures in a row": {
			{0, "enter", true}, {0, "fail", false},
			{0, "enter", true}, {0, "fail", false},
			{0, "enter", true}, {0, "succeed", false}, // which makes it begin again
			{0, "enter", true}, {0, "fail", false},
			{0, "enter", true}, {0, "fail", false},
			{0, "enter", true}, {1 * ms, "fail", false},
			{1 * ms, "enter", false},
			{250 * ms, "enter", false},
			{251 * ms, "enter", true},  // half-open
			{252 * ms, "enter", false}, // one at a time
			{300 * ms, "fail", false},
			{549 * ms, "enter", false},
			{550 * ms, "enter", true},
			{551 * ms, "succeed", false},
			{551 * ms, "enter", true}, {551 * ms, "enter", true},
		},
		"a probe that says nothing makes room for another": {
			{0, "enter", true}, {0, "fail", false}, {0, "enter", true}, {0, "fail", false}, {0, "enter", true}, {0, "fail", false},
			{250 * ms, "enter", true}, {260 * ms, "enter", false}, {270 * ms, "return", false}, {270 * ms, "enter", true},
		},
	} {
		var b breaker
		var last pass
		start := time.Unix(1000, 0)
		for i, s := range steps {
			now := start.Add(s.at)
			switch s.do {
			case "enter":
				p, ok := b.enter(now)
				if ok != s.want {
					t.Fatalf("%s, step %d, %v: let through: %v", name, i, s.at, ok)
				}
				if ok {
					last = p
				}
			case "succeed":
				b.succeeded(last)
			case "fail":
				b.failed(last, now)
			case "return":
				b.returned(last)
			}
		}
	}
}

// A call that began while the breaker was closed decides nothing once it is open.
func TestBreakerIgnoresLateCalls(t *testing.T) {
	var b breaker
	now := time.Unix(1000, 0)
	late, _ := b.enter(now)
	for range breakAfter {
		p, _ := b.enter(now)
		b.failed(p, now)
	}
	b.succeeded(late)
	if _, ok := b.enter(now); ok {
		t.Error("a success from before closed it")
	}
	b.failed(late, now.Add(time.Hour))
	if _, ok := b.enter(now.Add(breakFor)); !ok {
		t.Error("a failure from before kept it open")
	}
}

func TestGuardTellsErrorsApart(t *testing.T) {
	ctx := t.Context()
	fails := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	g := guard{deadline: time.Minute}
	for range 2 * breakAfter {
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
	for range breakAfter {
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
