package policing

import (
	"context"
	"errors"
	"testing"

	"github.com/jobshaper/jobshaper/buckets"
)

func TestSingle(t *testing.T) {
	spy := &lenderSpy{Memory: newMemory(t, tokens(10), func() int64 { return t0 })}
	with := func(r Rule) Checker {
		t.Helper()
		c, err := Single(r, newHybrid(t, spy, HybridConfig{Lease: 4, Clock: func() int64 { return t0 }}))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	open := with(Rule{Name: "open", Per: PerDownstream, Cost: 2})
	closed := with(Rule{Name: "closed", OnFailure: FailClosed})
	for i := range 5 {
		if v := check(t, open, acme, 1); !v.Allowed || v.Remaining != int64(4-i) || v.Rulings[0].Rule.Params != tokens(10) {
			t.Errorf("%d: %+v", i, v)
		}
	}
	if v := check(t, open, other, 1); v.Allowed || v.Refused != "open" || v.RetryAfter <= 0 || v.Degraded {
		t.Errorf("another tenant of the downstream: %+v", v)
	}
	if v := check(t, open, acme, 6); v.Allowed || v.RetryAfter != buckets.Never {
		t.Errorf("12 of 10: %+v", v)
	}

	spy.err = buckets.ErrStore
	if v := check(t, open, Subject{}, 1); !v.Allowed || !v.Degraded || v.Remaining != -1 {
		t.Errorf("open: %+v", v)
	}
	if v := check(t, closed, acme, 1); v.Allowed || !v.Unavailable || v.Refused != "closed" || v.RetryAfter <= 0 {
		t.Errorf("closed: %+v", v)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := closed.Check(gone, acme, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that went away: %v", err)
	}
	if _, err := closed.Check(t.Context(), acme, -1); !errors.Is(err, buckets.ErrCost) {
		t.Errorf("-1: %v", err)
	}
	for _, r := range []Rule{{}, {Name: "a", OnFailure: FailLocal}, {Name: "a", Heavy: 1}, {Name: "{}"}} {
		if _, err := Single(r, spy); !errors.Is(err, ErrRule) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
