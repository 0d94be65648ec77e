package policing

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/breaker"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

func newHybrid(t testing.TB, lender Lender, cfg HybridConfig) *Hybrid {
	t.Helper()
	h, err := NewHybrid(lender, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func newMemory(t interface{ Fatal(...any) }, params buckets.Params, clock func() int64) *buckets.Memory {
	m, err := buckets.NewMemory(params, buckets.MemoryConfig{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// spend asks until it is refused, or the lender is away, and returns how many passed.
func spend(t *testing.T, h *Hybrid, key string) (passed int64, err error) {
	for {
		d, err := h.Allow(t.Context(), key)
		if err != nil || !d.Allowed {
			return passed, err
		}
		passed++
	}
}

// Four nodes share 1000 tokens. One is cut off, and lives on what is left of its lease;
// one dies, and takes its lease with it. The others get all the rest.
func TestHybridFourNodes(t *testing.T) {
	const limit, lease = 1000, 20
	server := redistest.Start(t)
	var nodes [4]*Hybrid
	var wires [4]*proxy
	for i := range nodes {
		p, client := wire(t, server.Addr())
		shared, err := buckets.NewRedis(client, tokens(limit), buckets.RedisConfig{})
		if err != nil {
			t.Fatal(err)
		}
		cfg := HybridConfig{Lease: lease, Deadline: time.Minute} // which even a busy machine meets
		wires[i], nodes[i] = p, newHybrid(t, shared, cfg)
	}
	var passed [4]int64
	for i, h := range nodes {
		for range 105 + i { // so that each is left with less than a lease
			if d, err := h.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatalf("node %d: %+v, %v", i, d, err)
			}
			passed[i]++
		}
	}
	lost := 120 - passed[3] // what node 3, which is not asked again, had leased
	wires[2].sever()
	extra, err := spend(t, nodes[2], "k")
	if want := 120 - passed[2]; extra != want || !errors.Is(err, buckets.ErrStore) {
		t.Errorf("cut off: %d passed, then %v; want %d, the rest of its lease, then a failure of the store", extra, err, want)
	}
	passed[2] += extra

	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			n, err := spend(t, nodes[i], "k")
			if err != nil {
				t.Error(err)
			}
			passed[i] += n
		})
	}
	wg.Wait()
	all := passed[0] + passed[1] + passed[2] + passed[3]
	if all != limit-lost || lost > lease {
		t.Errorf("%v passed, %d in all; want %d less the %d that died with node 3, at most %d", passed, all, limit, lost, lease)
	}

	wires[2].mend()
	eventually(t, "the node that was cut off asks again", func() bool {
		d, err := nodes[2].Allow(t.Context(), "k")
		return err == nil && !d.Allowed && d.RetryAfter > 0
	})
}

func TestHybridTrace(t *testing.T) {
	now := t0
	clock := func() int64 { return now }
	params := buckets.Params{Algorithm: buckets.FixedWindow, Limit: 25, Window: time.Minute}
	spy := &lenderSpy{Memory: newMemory(t, params, clock)}
	h := newHybrid(t, spy, HybridConfig{Lease: 10, Clock: clock})
	const s = int64(time.Second / time.Microsecond)
	for i, step := range []struct {
		at, n     int64
		ok        bool
		remaining int64
		asked     int // the lender, so far
	}{
		{0, 1, true, 24, 1}, // leases 10
		{1 * s, 9, true, 15, 1},
		{1 * s, 12, true, 3, 2}, // more than a lease: just that
		{1 * s, 2, true, 1, 4},  // only 3 are left, so all of them
		{2 * s, 2, false, 1, 6}, // lacks 1; neither a lease nor that is there
		{2 * s, 2, false, 1, 6}, // repeated
		{2 * s, 1, true, 0, 6},
		{2*s + 50_000, 1, false, 0, 6},  // still
		{2*s + 100_000, 1, false, 0, 8}, // asked again
		{60 * s, 1, true, 24, 9},        // a new window
		{119 * s, 1, true, 23, 9},
		{120 * s, 1, true, 24, 10}, // the lease has lapsed with its window
	} {
		now = t0 + step.at
		d, err := h.AllowN(t.Context(), "k", step.n)
		if err != nil || d.Allowed != step.ok || d.Remaining != step.remaining || d.Limit != 25 || spy.asked != step.asked {
			t.Errorf("step %d: %+v, %v, asked %d times; want %+v", i, d, err, spy.asked, step)
		}
		wait := time.Minute - time.Duration(step.at%(60*s))*time.Microsecond
		if d.ResetAfter != wait || !step.ok && d.RetryAfter != wait {
			t.Errorf("step %d: %+v; want %v to the end of the window", i, d, wait)
		}
	}
	if d, err := h.AllowN(t.Context(), "k", 26); !errors.Is(err, buckets.ErrTooLarge) || d.RetryAfter != buckets.Never {
		t.Errorf("more than the limit: %+v, %v", d, err)
	}
	if _, err := h.AllowN(t.Context(), "k", -1); !errors.Is(err, buckets.ErrCost) {
		t.Errorf("-1: %v", err)
	}
	if d, err := h.Peek(t.Context(), "k"); err != nil || d.Remaining != 24 {
		t.Errorf("Peek: %+v, %v", d, err)
	}
	if err := h.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if d, err := h.Peek(t.Context(), "k"); err != nil || d.Remaining != 25 {
		t.Errorf("Peek after Reset: %+v, %v", d, err)
	}
}

// A lender that fails costs no token that was leased, and is soon left alone.
func TestHybridWithoutLender(t *testing.T) {
	spy := &lenderSpy{Memory: newMemory(t, tokens(100), func() int64 { return t0 })}
	h := newHybrid(t, spy, HybridConfig{Lease: 10, Clock: func() int64 { return t0 }})
	if _, err := h.AllowN(t.Context(), "k", 4); err != nil {
		t.Fatal(err)
	}
	spy.err = buckets.ErrStore
	for range 20 {
		if _, err := h.AllowN(t.Context(), "k", 7); !errors.Is(err, buckets.ErrStore) {
			t.Fatal(err)
		}
	}
	if spy.asked > 1+breaker.After+1 {
		t.Errorf("asked %d times, want it left alone after %d failures", spy.asked, breaker.After)
	}
	if d, err := h.AllowN(t.Context(), "k", 6); err != nil || !d.Allowed {
		t.Errorf("the rest of the lease: %+v, %v", d, err)
	}
}

// A caller that goes away takes nothing of the lease with it, and others are served.
func TestHybridCallerGoesAway(t *testing.T) {
	spy := &lenderSpy{Memory: newMemory(t, tokens(100), func() int64 { return t0 })}
	h := newHybrid(t, spy, HybridConfig{Lease: 10, Clock: func() int64 { return t0 }})
	if _, err := h.AllowN(t.Context(), "k", 4); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 * breaker.After {
		_, err := h.AllowN(gone, "k", 8)
		if !errors.Is(err, buckets.ErrStore) || !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that went away: %v", err)
		}
	}
	if d, err := h.AllowN(t.Context(), "k", 6); err != nil || !d.Allowed || spy.asked != 1 {
		t.Errorf("the rest of the lease: %+v, %v, asked %d times", d, err, spy.asked)
	}
	if d, err := h.AllowN(t.Context(), "k", 8); err != nil || !d.Allowed {
		t.Errorf("the next: %+v, %v", d, err)
	}
}

// Many callers of one key: no token is spent twice, none is lost, one asks at a time.
func TestHybridManyAtOnce(t *testing.T) {
	var given int64
	spy := &lenderSpy{Memory: newMemory(t, tokens(500), func() int64 { return t0 }), given: &given}
	h := newHybrid(t, spy, HybridConfig{Lease: 7, Clock: func() int64 { return t0 }})
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			n, err := spend(t, h, "k")
			if err != nil {
				t.Error(err)
			}
			passed.Add(n)
		})
	}
	wg.Wait()
	if passed.Load() != 500 || given != 500 {
		t.Errorf("%d passed of %d given, want 500", passed.Load(), given)
	}
}

func TestHybridIsBounded(t *testing.T) {
	now := t0
	clock := func() int64 { return now }
	h := newHybrid(t, newMemory(t, tokens(100), clock), HybridConfig{Lease: 10, MaxKeys: 8, Clock: clock})
	for i := range 100 {
		if d, err := h.Allow(t.Context(), string(rune('a'+i))); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if n := len(h.leases.byKey); n > 8 {
			t.Fatalf("%d leases, want at most 8", n)
		}
	}
	now += 1000 * 3_600_000_000 // every bucket is full again
	for i := range 20 {
		if _, err := h.Allow(t.Context(), string(rune('A'+i))); err != nil {
			t.Fatal(err)
		}
	}
	for key := range h.leases.byKey {
		if key >= "a" {
			t.Errorf("the lapsed lease of %s is still there", key)
		}
	}
	for _, lease := range []int64{0, 101} {
		if _, err := NewHybrid(newMemory(t, tokens(100), clock), HybridConfig{Lease: lease}); !errors.Is(err, buckets.ErrParameter) {
			t.Errorf("Lease %d: %v", lease, err)
		}
	}
}
