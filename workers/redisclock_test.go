package workers

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

const tau = 20 * time.Millisecond

// twoClocks are a local clock and Redis', which is off by some, drifts, and may step.
type twoClocks struct {
	now    time.Time     // local
	off    time.Duration // Redis − local
	drift  int64         // of Redis' clock, in millionths
	chance *rand.Rand
}

func (c *twoClocks) pass(d time.Duration) {
	c.now = c.now.Add(d)
	c.off += d * time.Duration(c.drift) / 1_000_000
}

func (c *twoClocks) upTo(d time.Duration) time.Duration {
	return time.Duration(c.chance.Int64N(int64(d)))
}

// call is a call that grants a slot so far ahead. It returns also the local instant at which the
// slot comes, if no clock steps.
func (c *twoClocks) call(ahead, request, reply time.Duration) (slot, asked, told, comes time.Time) {
	asked = c.now
	c.pass(request)
	slot, comes = time.UnixMicro(c.now.Add(c.off).Add(ahead).UnixMicro()), c.now.Add(ahead)
	c.pass(reply)
	return slot, asked, c.now, comes
}

// TestSlotHasComeByBothClocks: whatever a clock is off by or drifts, no instant is before its slot,
// nor outside of what the call alone says.
func TestSlotHasComeByBothClocks(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var k redisClock
		c := twoClocks{now: time.Now(), off: time.Duration(chance.Int64N(int64(2*time.Hour))) - time.Hour, drift: chance.Int64N(2*maxDrift-1) - maxDrift + 1, chance: chance}
		for range 200 {
			wait := c.upTo(60 * time.Millisecond).Truncate(time.Microsecond)
			slot, asked, told, comes := c.call(wait, c.upTo(2*time.Millisecond), c.upTo(5*time.Millisecond))
			at := k.window(slot, wait, tau, asked, told).from
			// Redis counts in µs, and drifts a little during the wait.
			if early := comes.Sub(at); early > 10*time.Microsecond {
				t.Fatalf("%v before its slot, drift %d", early, c.drift)
			}
			if at.Before(asked.Add(wait)) || at.After(told.Add(wait)) {
				t.Fatalf("at %v, want between request + wait %v and reply + wait %v", at, asked.Add(wait), told.Add(wait))
			}
			c.pass(c.upTo(10 * time.Second))
		}
	}
}

// TestStartsAreAsEvenAsTheFastestReply: replies that are late by milliseconds do not move starts.
func TestStartsAreAsEvenAsTheFastestReply(t *testing.T) {
	var k redisClock
	c := twoClocks{now: time.Now(), off: time.Hour, chance: rand.New(rand.NewPCG(1, 2))}
	const fastest, wait = 100 * time.Microsecond, 20 * time.Millisecond
	for n := range 1000 {
		reply := fastest
		if n%10 > 0 {
			reply += c.upTo(10 * time.Millisecond)
		}
		slot, asked, told, comes := c.call(wait, c.upTo(time.Millisecond), reply)
		if late := k.window(slot, wait, tau, asked, told).from.Sub(comes); late < 0 || late > fastest+20*time.Microsecond {
			t.Fatalf("call %d: %v after its slot, want about %v", n, late, fastest)
		}
		c.pass(c.upTo(time.Millisecond))
	}
}

// TestClockThatSteps: the call that shows a step is the first to follow it.
func TestClockThatSteps(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -10 * time.Millisecond, 10 * time.Millisecond, time.Hour} {
		var k redisClock
		c := twoClocks{now: time.Now(), chance: rand.New(rand.NewPCG(1, 2))}
		const way, wait = time.Millisecond, 20 * time.Millisecond
		for n := range 10 {
			if n == 5 {
				c.off += step
			}
			slot, asked, told, comes := c.call(wait, way, way)
			if late := k.window(slot, wait, tau, asked, told).from.Sub(comes); late < -time.Microsecond || late > 2*way {
				t.Fatalf("step of %v, call %d: %v after its slot, want 0 to %v", step, n, late, 2*way)
			}
		}
	}
}

// TestWindowFromFarAway: from far away a start is in its slot too, if both ways to Redis take about
// the same time. Whatever they take, none is early; and there is no window where the way is too long
// for the tolerance.
func TestWindowFromFarAway(t *testing.T) {
	const wait = 100 * time.Millisecond
	for _, tc := range []struct {
		request, reply time.Duration
		none           bool
	}{
		{0, 0, false}, {5, 5, false}, {0, 10, false}, {10, 0, false}, {10, 10, false}, {0, 28, false}, {15, 15, false}, {19, 19, false},
		{30, 2, false}, {60, 5, true}, // it connected first
		{100, 100, true}, {50, 50, true}, {25, 25, true}, {21, 29, true},
	} {
		var k redisClock
		c := twoClocks{now: time.Now(), chance: rand.New(rand.NewPCG(1, 2))}
		slot, asked, told, comes := c.call(wait, tc.request*time.Millisecond, tc.reply*time.Millisecond)
		w := k.window(slot, wait, tau, asked, told)
		from, until := w.from.Sub(comes), w.until.Sub(comes)
		skew := (tc.request - tc.reply).Abs() * time.Millisecond / 2
		switch {
		case tc.none:
			if until > from {
				t.Errorf("%d ms there, %d back: between %v and %v after the slot, want never", tc.request, tc.reply, from, until)
			}
		case from < 0 || until < from || until > tau+skew:
			t.Errorf("%d ms there, %d back: between %v and %v after the slot, want at most %v", tc.request, tc.reply, from, until, tau+skew)
		}
	}
}

// A machine that is suspended between the grant of a slot and the start wakes with a monotonic clock
// that says that the slot is yet to come. The wall clock knows better: the job gets another slot.
func TestSlotPassesWhileTheMachineIsSuspended(t *testing.T) {
	const asleep = 10 * time.Second
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg, "d")
	if err != nil {
		t.Fatal(err)
	}
	var attempts []int
	b := newBench(t, func(ctx context.Context, _ *asynq.Task) error {
		info, _ := JobFrom(ctx)
		attempts = append(attempts, info.Attempt)
		return nil
	}, Config{Metrics: m})
	var looks atomic.Int64
	b.pool.clock.wall = func(at time.Time) time.Time {
		if looks.Add(1) > 1 { // after the first grant
			at = at.Add(asleep)
		}
		return at.Round(0)
	}
	b.start()
	b.wait("a", b.offer("a", 1))
	b.pool.Stop()
	if missed := testutil.ToFloat64(m.missed); missed != 1 || !slices.Equal(attempts, []int{1}) {
		t.Errorf("%v slots missed, and attempts %v, want one and one", missed, attempts)
	}
}
