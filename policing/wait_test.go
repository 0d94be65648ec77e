package policing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// Each test runs in a bubble, whose clock moves on when all goroutines wait.

func TestWaitIsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Config{}, "token_bucket 10/s burst 1")
		w := Waiter{Checker: p}
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 5 {
			wg.Go(func() {
				v, err := w.Wait(t.Context(), acme, 1)
				if err != nil || !v.Allowed {
					t.Errorf("%d: %+v, %v", i, v, err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprintf("%d after %v", i, time.Since(start)))
			})
			synctest.Wait() // so that they come one by one
		}
		if _, err := w.Wait(t.Context(), other, 1); err != nil || time.Since(start) != 0 {
			t.Errorf("another subject waited %v, %v", time.Since(start), err)
		}
		wg.Wait()
		want := []string{"0 after 0s", "1 after 100ms", "2 after 200ms", "3 after 300ms", "4 after 400ms"}
		if !slices.Equal(order, want) {
			t.Errorf("passed in the order %q, want %q", order, want)
		}
		if len(w.lines) != 0 {
			t.Errorf("%d lines are left", len(w.lines))
		}
	})
}

// A small request does not overtake a large one that came before.
func TestWaitDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Config{}, "token_bucket 1/s burst 5")
		w := Waiter{Checker: p}
		check(t, p, acme, 4)
		start := time.Now()
		var wg sync.WaitGroup
		took := make([]time.Duration, 2)
		for i, n := range []int64{5, 1} {
			wg.Go(func() {
				if v, err := w.Wait(t.Context(), acme, n); err != nil || !v.Allowed {
					t.Errorf("%d: %+v, %v", i, v, err)
				}
				took[i] = time.Since(start)
			})
			synctest.Wait()
		}
		wg.Wait()
		if want := []time.Duration{4 * time.Second, 5 * time.Second}; !slices.Equal(took, want) {
			t.Errorf("waited %v, want %v", took, want)
		}
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Config{}, "token_bucket 1/s burst 2")
		w := Waiter{Checker: p}
		check(t, p, acme, 2)

		short, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
		defer cancel()
		start := time.Now()
		if v, err := w.Wait(short, acme, 1); err != nil || v.Allowed || v.RetryAfter != time.Second || time.Since(start) != 0 {
			t.Errorf("a deadline before its turn: %+v, %v after %v; want the refusal at once", v, err, time.Since(start))
		}
		if v, err := w.Wait(t.Context(), acme, 3); err != nil || v.RetryAfter != buckets.Never {
			t.Errorf("what can never pass: %+v, %v", v, err)
		}
		if _, err := w.Wait(t.Context(), acme, -1); !errors.Is(err, buckets.ErrCost) {
			t.Errorf("-1: %v", err)
		}

		// The head and one behind it give up; the last one takes their place.
		gone, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if v, err := w.Wait(gone, acme, 2); !errors.Is(err, context.Canceled) || v.Allowed {
					t.Errorf("gone: %+v, %v", v, err)
				}
			})
			synctest.Wait()
		}
		wg.Go(func() {
			if v, err := w.Wait(t.Context(), acme, 1); err != nil || !v.Allowed || time.Since(start) != time.Second {
				t.Errorf("the last: %+v, %v after %v", v, err, time.Since(start))
			}
		})
		synctest.Wait()
		leave()
		wg.Wait()
		if len(w.lines) != 0 {
			t.Errorf("%d lines are left", len(w.lines))
		}
	})
}

// Many come and go at once: the line is never stuck, and what passed is what was taken.
func TestWaitersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Config{}, "token_bucket 1000/s burst 1")
		w := Waiter{Checker: p}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*time.Millisecond+time.Microsecond)
				defer cancel()
				if v, err := w.Wait(ctx, acme, 1); err != nil && (v.Allowed || !errors.Is(err, context.DeadlineExceeded)) {
					t.Errorf("%d: %+v, %v", i, v, err)
				}
			})
		}
		wg.Wait()
		if v, err := w.Wait(t.Context(), acme, 1); err != nil || !v.Allowed || len(w.lines) != 0 {
			t.Errorf("afterwards: %+v, %v, %d lines", v, err, len(w.lines))
		}
		if c := p.Counts(); c.Allowed < 2 {
			t.Errorf("counts %+v", c)
		}
	})
}

// sequence gives one answer after the other, and the last one again and again.
type sequence []Verdict

func (s *sequence) Check(context.Context, Subject, int64) (Verdict, error) {
	v := (*s)[0]
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
	return v, nil
}

// Whoever waits also waits for Redis to come back.
func TestWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := Waiter{Checker: &sequence{
			{Degraded: true, Unavailable: true, RetryAfter: 250 * time.Millisecond},
			{Degraded: true, Unavailable: true, RetryAfter: 250 * time.Millisecond},
			{Allowed: true},
		}}
		start := time.Now()
		if v, err := w.Wait(t.Context(), acme, 1); err != nil || !v.Allowed || time.Since(start) < 500*time.Millisecond {
			t.Errorf("%+v, %v after %v", v, err, time.Since(start))
		}
	})
}
