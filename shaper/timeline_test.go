package shaper

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// sole is a world with one tenant and one job, for which the gate is asked for one slot after
// another.
type sole struct {
	*world
	g *queue.Grant
}

func newSole(w *world, r buckets.Rate) *sole {
	w.set("a", Policy{Rate: r, Depth: 1})
	w.pool("p", 1)
	w.offer(Spec{Tenant: "a", ID: "j"})
	return &sole{world: w}
}

// ask asks for a slot now. Without one, why says so, and the job is back in its bucket.
func (s *sole) ask() (slot int64, why string) {
	s.t.Helper()
	ctx := s.t.Context()
	var g *queue.Grant
	var err error
	if s.g == nil {
		k := queue.Ticket{Tenant: "a", ID: "j"}
		s.out(&k)
		g, why, err = s.gate.Enter(ctx, k, queue.NewToken("p"))
	} else {
		g, why, err = s.gate.Again(ctx, s.g, queue.NewToken("p"))
	}
	s.must(err)
	if s.g = g; g == nil {
		return 0, why
	}
	return g.Slot.UnixMicro(), ""
}

// out makes a ticket by hand: a release would wait for the time at which the job may leave.
func (s *sole) out(k *queue.Ticket) {
	s.t.Helper()
	ctx := s.t.Context()
	pipe := s.rdb.TxPipeline()
	pipe.LRem(ctx, s.q.WaitKey("a"), 1, "j")
	pipe.HSet(ctx, s.q.StateKey("a"), "j", "o 7 0 0 0 - 0 1 - - ")
	pipe.ZAdd(ctx, s.q.OutKey(), redis.Z{Score: queue.Forever, Member: "a j"})
	pipe.ZAdd(ctx, s.q.OutsKey("a"), redis.Z{Score: 1, Member: "j"})
	pipe.HSet(ctx, s.q.TenantKey("a"), "out", 1)
	pipe.HSet(ctx, s.q.DownstreamKey(), "out", 1)
	_, err := pipe.Exec(ctx)
	s.must(err)
	k.Release = 7
}

func drawRate(t *rapid.T) buckets.Rate {
	return rapid.OneOf(
		rapid.SampledFrom([]buckets.Rate{rate(1, 90*time.Second), rate(7, time.Second), rate(3, 333333*time.Microsecond),
			rate(1000, time.Second), rate(1, time.Hour), rate(999_983, time.Second), rate(1, time.Microsecond)}),
		rapid.Custom(func(t *rapid.T) buckets.Rate {
			return rate(rapid.Int64Range(1, 1_000_000).Draw(t, "events"),
				time.Duration(rapid.Int64Range(1, 3600*second).Draw(t, "period"))*time.Microsecond)
		})).Draw(t, "rate")
}

// TestGateKeepsTheTimeline asks the gate at any times, while the clock steps, the rate changes, the
// tenant is paused and Redis becomes another one, and compares every slot with the timeline by the
// book. Also, slots are an interval apart, in elapsed time too unless the clock stepped ahead, and
// the next one is never further away than an interval and the hold.
func TestGateKeepsTheTimeline(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	for range 3 {
		rapid.Check(t, func(rt *rapid.T) { keepsTheTimeline(t, rt, rdb) })
	}
}

func keepsTheTimeline(t *testing.T, rt *rapid.T, rdb redis.UniversalClient) {
	r := drawRate(rt)
	s := newSole(newWorld(t, rdb), r)
	s.setDownstream(DownstreamPolicy{MaxLead: DefaultLead})
	book := exact{known: true, ahead: hold}
	epoch, elapsed := int64(1), s.now // elapsed is a clock that never steps
	var lastStart, stepped int64
	for range rapid.IntRange(1, 40).Draw(rt, "calls") {
		iv := up(interval(r))
		d := rapid.SampledFrom([]int64{0, 1, iv - 1, iv, iv + 7*milli, iv + 11*milli, 3 * iv}).Draw(rt, "pass")
		s.now, elapsed = s.now+d, elapsed+d
		switch rapid.SampledFrom([]string{"", "", "", "", "back", "ahead", "rate", "pause", "run id"}).Draw(rt, "event") {
		case "back":
			s.now -= rapid.Int64Range(1, 3600*second).Draw(rt, "step")
			epoch = min(epoch, s.now) // what was forgotten then was forgotten before now
		case "ahead":
			d := rapid.Int64Range(1, 3600*second).Draw(rt, "step")
			s.now += d
			stepped += d
		case "rate":
			r = drawRate(rt)
			iv = up(interval(r))
			s.set("a", Policy{Rate: r})
		case "pause":
			s.must(s.admin.Pause(t.Context(), "a", 0))
			if _, why := s.ask(); why != queue.TicketPaused {
				rt.Fatalf("paused, and the gate says %q", why)
			}
			s.must(s.admin.Resume(t.Context(), "a"))
		case "run id":
			s.must(rdb.HSet(t.Context(), s.q.DownstreamKey(), "rid", "another").Err())
			epoch = s.now
		}

		book.settle(r, s.now, epoch) // whatever the gate says, it looks
		want := book.earliest(r, s.now, epoch, mGrace)
		slot, why := s.ask()
		switch {
		case want-s.now > hold:
			if why != queue.TicketEarly {
				rt.Fatalf("the next slot is %d µs away, and the gate says %q, slot %d µs away", want-s.now, why, slot-s.now)
			}
			if ahead := want - s.now; ahead > iv+2*hold { // the last slot lay up to a hold ahead, and so may its successor
				rt.Fatalf("the next slot is %d µs away, the interval is %d", ahead, iv)
			}
			continue
		case slot != want:
			rt.Fatalf("slot %d µs from now (%q), want %d", slot-s.now, why, want-s.now)
		}
		book.grant(r, slot, s.now, epoch, 0)
		start := elapsed + slot - s.now
		if gap := start - lastStart; lastStart > 0 && gap+stepped < iv-1 {
			rt.Fatalf("a gap of %d µs, the interval is %d, steps ahead of %d", gap, iv, stepped)
		}
		lastStart, stepped = start, 0
	}
}

// The 700th slot at 7/s is exactly 100 s after the first, however late the calls are within the
// grace.
func TestSlotsDoNotDrift(t *testing.T) {
	t.Parallel()
	s := newSole(newWorld(t, redistest.Open(t)), rate(7, time.Second))
	first, _ := s.ask()
	slot := first
	for i := range 700 {
		s.now = slot + int64(i*7919)%(10*milli) // as workers come, up to 10 ms after their slots
		next, why := s.ask()
		for why == queue.TicketEarly {
			s.pass(50 * milli)
			next, why = s.ask()
		}
		if gap := next - slot; gap != 142_857 && gap != 142_858 {
			t.Fatalf("slot %d is %d µs after the one before", i+2, gap)
		}
		slot = next
	}
	if slot-first != 100*second {
		t.Errorf("slot 701 is %v after the first, want 100s", time.Duration(slot-first)*time.Microsecond)
	}
}

func TestIdleTimeEarnsNothing(t *testing.T) {
	s := newSole(newWorld(t, redistest.Open(t)), rate(100, time.Second))
	s.ask()
	s.pass(3600 * second)
	var got []int64
	for range 4 {
		slot, _ := s.ask()
		got = append(got, slot-s.now)
	}
	if want := []int64{0, 10 * milli, 20 * milli, 30 * milli}; !slices.Equal(got, want) {
		t.Errorf("after an hour idle, four calls at once got slots in %v µs, want %v", got, want)
	}
}

// A call that is late by more than the grace starts a new series of slots: what was missed is not
// made up.
func TestLatenessIsMadeUpWithinTheGraceOnly(t *testing.T) {
	for _, tc := range []struct{ late, gap int64 }{
		{0, 100 * milli}, {10 * milli, 100 * milli}, {10*milli + 1, 110*milli + 1}, {second, 1100 * milli},
	} {
		s := newSole(newWorld(t, redistest.Open(t)), rate(10, time.Second))
		first, _ := s.ask()
		s.now = first + 100*milli + tc.late
		if slot, _ := s.ask(); slot-first != tc.gap {
			t.Errorf("%d µs late: a gap of %d µs, want %d", tc.late, slot-first, tc.gap)
		}
	}
}
