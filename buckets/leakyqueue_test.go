package buckets

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

const t0 = int64(1_700_000_000_000_000)

// offers is a way to offer jobs to a queue, one after the other.
type offers func(q LeakyQueue, now int64) QueueDecision

// offerers are the three ways: in Go, and by the script on each kind of store. Each gives a fresh
// queue.
func offerers(t *testing.T) map[string]func(t *testing.T) offers {
	in := func(client redis.Scripter) func(*testing.T) offers {
		n := 0
		return func(t *testing.T) offers {
			n++
			key := fmt.Sprint("q", n)
			return func(q LeakyQueue, now int64) QueueDecision {
				d, err := q.OfferIn(t.Context(), client, key, now)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
		}
	}
	return map[string]func(*testing.T) offers{
		"go": func(*testing.T) offers {
			var tl Timeline
			return func(q LeakyQueue, now int64) (d QueueDecision) {
				tl, d = q.Offer(tl, now)
				return d
			}
		},
		"redis": in(redistest.Open(t)), "miniredis": in(redistest.Mini(t)),
	}
}

func TestLeakyQueueVectors(t *testing.T) {
	for name, fresh := range offerers(t) {
		t.Run(name, func(t *testing.T) {
			plain, late := 0, 0
			for _, v := range loadVectors(t) {
				if v.Algorithm != "leaky-queue" {
					continue
				}
				if plain++; v.Params.Grace > 0 {
					late++
				}
				q, offer := LeakyQueue{v.Params.Depth, v.rate(), micros(v.Params.Grace)}, fresh(t)
				for i, row := range v.Rows {
					if d := offer(q, row.T); d.Allowed != row.OK || d.LeavesIn != micros(row.Wait) || d.RetryAfter != micros(row.Retry) {
						t.Errorf("%s, row %d: got %+v, want %+v", v.Name, i, d, row)
						break
					}
				}
			}
			if plain == late || late == 0 {
				t.Errorf("%d vectors for the leaky queue, %d of them with a grace: want some of each", plain, late)
			}
		})
	}
}

func TestLeakyQueueLikeLimitReq(t *testing.T) {
	// nginx: "limit_req zone=z burst=5" at 10 r/s, eight requests at once. Its burst
	// counts the waiting ones without the one that passes, so our depth is burst + 1.
	q, tl := LeakyQueue{Depth: 6, Rate: PerSecond(10)}, Timeline{}
	for i, want := range []time.Duration{0, 100, 200, 300, 400, 500, -1, -1} {
		var d QueueDecision
		tl, d = q.Offer(tl, t0)
		if d.Allowed != (want >= 0) || (d.Allowed && d.LeavesIn != want*time.Millisecond) {
			t.Errorf("request %d: %+v, want a delay of %d ms (-1: refused)", i, d, want)
		}
		if !d.Allowed && d.RetryAfter != 100*time.Millisecond {
			t.Errorf("request %d: RetryAfter %v, want 100ms", i, d.RetryAfter)
		}
	}
}

func TestLeakyQueueValidate(t *testing.T) {
	for _, tc := range []struct {
		q    LeakyQueue
		want error
	}{
		{LeakyQueue{Depth: 1, Rate: PerSecond(1)}, nil},
		{LeakyQueue{Depth: 1000, Rate: Rate{1, time.Hour}}, nil},
		{LeakyQueue{Depth: math.MaxInt64, Rate: Rate{MaxEvents, time.Microsecond}}, nil}, // 106 days' worth
		{LeakyQueue{Depth: 0, Rate: PerSecond(1)}, ErrParameter},
		{LeakyQueue{Depth: -1, Rate: PerSecond(1)}, ErrParameter},
		{LeakyQueue{Depth: 1000, Rate: Rate{1, MaxPeriod}}, ErrParameter}, // a thousand years
		{LeakyQueue{Depth: math.MaxInt64, Rate: Rate{1, MaxPeriod}}, ErrParameter},
		{LeakyQueue{Depth: 1, Rate: Rate{}}, ErrRate},
		{LeakyQueue{Depth: 1, Rate: PerSecond(1), Grace: maxGrace}, nil},
		{LeakyQueue{Depth: 1, Rate: PerSecond(1), Grace: maxGrace + time.Microsecond}, ErrParameter},
		{LeakyQueue{Depth: 1, Rate: PerSecond(1), Grace: -time.Microsecond}, ErrParameter},
		{LeakyQueue{Depth: 1, Rate: PerSecond(1), Grace: time.Nanosecond}, ErrParameter},
	} {
		if err := tc.q.Validate(); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.q, err, tc.want)
		}
	}
}

func TestLeakyQueueProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := LeakyQueue{Depth: rapid.Int64Range(1, 9).Draw(t, "depth"), Rate: drawQuickRate(t)}
		iv := interval(q.Rate)
		now, tl := t0, Timeline{}
		var leave []int64
		for range rapid.IntRange(1, 60).Draw(t, "jobs") {
			now += rapid.SampledFrom([]int64{0, 0, 1, iv.us / 3, iv.us, 4 * iv.us}).Draw(t, "elapsed")
			leave = slices.DeleteFunc(leave, func(at int64) bool { return at <= now })
			level := q.Level(tl, now)
			if level < 0 || level > q.Depth {
				t.Fatalf("level %d of %d", level, q.Depth)
			}
			before := tl
			var d QueueDecision
			tl, d = q.Offer(tl, now)
			if d.Allowed != (level < q.Depth) {
				t.Fatalf("%d of %d places taken, and Offer says %+v", level, q.Depth, d)
			}
			if d.Allowed {
				leave = append(leave, now+d.LeavesIn.Microseconds())
				if int64(len(leave)) > q.Depth {
					t.Fatalf("%d wait in a queue of %d", len(leave), q.Depth)
				}
				continue
			}
			if tl != before {
				t.Fatalf("a refusal changed %+v to %+v", before, tl)
			}
			retry := d.RetryAfter.Microseconds()
			if _, d := q.Offer(tl, now+retry); !d.Allowed {
				t.Fatalf("refused after waiting RetryAfter, %d µs", retry)
			}
			if _, d := q.Offer(tl, now+retry-1); retry < 1 || d.Allowed {
				t.Fatalf("RetryAfter of %d µs is not the least wait", retry)
			}
		}
	})
}
