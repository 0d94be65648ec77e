package buckets

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

func TestTakeAll(t *testing.T) {
	for name, client := range map[string]redis.UniversalClient{"redis": redistest.Start(t).Client(), "miniredis": redistest.Mini(t)} {
		t.Run(name, func(t *testing.T) { testTakeAll(t, client) })
	}
}

func testTakeAll(t *testing.T, client redis.UniversalClient) {
	ctx := context.Background()
	limits := func() (all []*Redis) {
		for _, params := range slow() {
			all = append(all, onServerTime(t, client, params))
		}
		return all
	}
	ask := func(limits []*Redis, n int64) (requests []Request) {
		for _, l := range limits {
			requests = append(requests, Request{l, "k", n})
		}
		return requests
	}
	remaining := func(limits []*Redis) (left []int64) {
		for _, l := range limits {
			d, err := l.Peek(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, d.Remaining)
		}
		return left
	}

	all := limits()
	ds, ok, err := TakeAll(ctx, ask(all, 2)...)
	if err != nil || !ok {
		t.Fatal(ds, ok, err)
	}
	for i, d := range ds {
		if !d.Allowed || d.Remaining != 3 {
			t.Errorf("%s: %+v", all[i].Params().Algorithm, d)
		}
	}

	// Whichever refuses, none of the others has taken anything.
	for i := range all {
		all := limits()
		if _, err := all[i].AllowN(ctx, "k", 4); err != nil {
			t.Fatal(err)
		}
		ds, ok, err := TakeAll(ctx, ask(all, 2)...)
		if err != nil || ok {
			t.Fatal(ds, ok, err)
		}
		for j, left := range remaining(all) {
			want := int64(5)
			if i == j {
				want = 1
			}
			if left != want || ds[j].Remaining != want || ds[j].Allowed != (i != j) || (ds[j].RetryAfter > 0) != (i == j) {
				t.Errorf("limit %d refused; of limit %d %d are left, want %d: %+v", i, j, left, want, ds[j])
			}
		}
	}

	all = limits()
	requests := ask(all, 1)
	requests[2].N = 6
	ds, ok, err = TakeAll(ctx, requests...)
	if err != nil || ok || ds[2].RetryAfter != Never || ds[2].Allowed || !ds[1].Allowed || remaining(all)[1] != 5 {
		t.Errorf("one can never pass: %+v, %v, %v", ds, ok, err)
	}
	if _, _, err := TakeAll(ctx, requests[0], requests[0]); !errors.Is(err, ErrKey) {
		t.Errorf("one key twice: %v", err)
	}
	requests[2].N = -1
	if _, _, err := TakeAll(ctx, requests...); !errors.Is(err, ErrCost) {
		t.Errorf("cost -1: %v", err)
	}
	if _, ok, err := TakeAll(ctx); !ok || err != nil {
		t.Errorf("no limits at all: %v, %v", ok, err)
	}
}
