package shaper

import (
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// slots runs jobs for a while and returns the slots by tenant, in µs since the epoch. Every job
// ends at its slot.
func (w *world) slots(for_ int64) map[string][]int64 {
	w.t.Helper()
	out := map[string][]int64{}
	for end := w.now + for_; w.now < end; {
		g := w.start()
		w.now = max(w.now, g.Slot.UnixMicro())
		w.finish(g, queue.Finish{Ending: queue.EndOK})
		out[g.Tenant] = append(out[g.Tenant], g.Slot.UnixMicro())
	}
	return out
}

func apart(t *testing.T, what string, slots []int64, least int64) {
	t.Helper()
	for i := 1; i < len(slots); i++ {
		if gap := slots[i] - slots[i-1]; gap < least {
			t.Errorf("%s: slots %d and %d are %d µs apart, want %d", what, i, i+1, gap, least)
			return
		}
	}
}

// Where the downstream's rate binds, its tenants share it by weight, none beyond its own rate.
func TestTenantsShareByWeight(t *testing.T) {
	testenv.Long(t, "plays thousands of starts")
	t.Parallel()
	for _, tc := range []struct {
		name string
		pol  map[string]Policy
		want map[string]int // starts of 120
	}{
		{"2:1", map[string]Policy{"a": {Rate: rate(1000, time.Second), Weight: 2}, "b": {Rate: rate(1000, time.Second)}}, map[string]int{"a": 80, "b": 40}},
		{"3:2:1", map[string]Policy{"a": {Rate: rate(1000, time.Second), Weight: 3}, "b": {Rate: rate(1000, time.Second), Weight: 2},
			"c": {Rate: rate(1000, time.Second)}}, map[string]int{"a": 60, "b": 40, "c": 20}},
		{"one is slower than its share", map[string]Policy{"a": {Rate: rate(1, time.Second), Weight: 9}, "b": {Rate: rate(1000, time.Second)}},
			map[string]int{"a": 12, "b": 108}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, redistest.Open(t))
			w.setDownstream(DownstreamPolicy{Rate: rate(10, time.Second)})
			w.pool("p", 4)
			for name, p := range tc.pol {
				w.set(name, p)
				w.offers(name, 130)
			}
			got := w.slots(12 * second)
			n := 0
			for name, want := range tc.want {
				if l := len(got[name]); l < want-2 || l > want+2 {
					t.Errorf("%s started %d times, want %d", name, l, want)
				}
				n += len(got[name])
			}
			if n < 119 || n > 121 {
				t.Errorf("%d starts in 12 s at 10/s", n)
			}
		})
	}
}

// A tenant that comes back after having been idle shares from then on; it does not catch up.
func TestIdlenessEarnsNoShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Open(t))
	w.setDownstream(DownstreamPolicy{Rate: rate(10, time.Second)})
	w.pool("p", 4)
	for _, name := range []string{"a", "b"} {
		w.set(name, Policy{Rate: rate(1000, time.Second)})
	}
	w.offers("b", 1)
	w.runNext()
	w.offers("a", 250)
	w.slots(10 * second)
	w.offers("b", 100)
	if got := w.slots(4 * second); len(got["b"]) < 19 || len(got["b"]) > 22 {
		t.Errorf("b had %d of 40 starts after it had been idle, want half", len(got["b"]))
	}
}

// A slot satisfies the tenant's timeline and the downstream's.
func TestTwoTimelines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Open(t))
	w.setDownstream(DownstreamPolicy{Rate: rate(7, time.Second)})
	w.pool("p", 8)
	w.set("a", Policy{Rate: rate(20, time.Second)})
	w.set("b", Policy{Rate: rate(3, time.Second)})
	w.offers("a", 80)
	w.offers("b", 80)
	got := w.slots(10 * second)
	var all []int64
	for i, k := 0, 0; i < len(got["a"]) || k < len(got["b"]); {
		if k == len(got["b"]) || i < len(got["a"]) && got["a"][i] < got["b"][k] {
			all, i = append(all, got["a"][i]), i+1
		} else {
			all, k = append(all, got["b"][k]), k+1
		}
	}
	apart(t, "a", got["a"], 50_000)
	apart(t, "b", got["b"], 333_333)
	apart(t, "downstream", all, 142_857)
	if len(all) < 69 || len(all) > 71 {
		t.Errorf("%d starts in 10 s at 7/s", len(all))
	}
	if n := len(got["b"]); n < 22 { // every third slot of the downstream's, which is 428 ms after b's last one
		t.Errorf("b started %d times in 10 s at 3/s", n)
	}
}

func TestMaxInFlight(t *testing.T) {
	rdb := redistest.Open(t)
	for _, tc := range []struct {
		name string
		set  func(w *world)
		want int
	}{
		{"of the tenant", func(w *world) { w.set("a", Policy{MaxInFlight: 2}) }, 2},
		{"of the downstream", func(w *world) { w.setDownstream(DownstreamPolicy{MaxInFlight: 3}) }, 3},
		{"as many as the workers have places", func(w *world) {}, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.set("a", Policy{Rate: rate(1000, time.Second)})
			tc.set(w)
			w.pool("p", 5)
			w.offers("a", 20)
			var running []*queue.Grant
			flow := func(n int) {
				for range n {
					w.pass(100 * milli)
					tickets, _, _ := w.release(50)
					for _, k := range tickets {
						if g, _ := w.enter(k, "p"); g != nil {
							running = append(running, g)
						}
					}
				}
			}
			if flow(10); len(running) != tc.want {
				t.Fatalf("%d run at once, want %d", len(running), tc.want)
			}
			// A place that is given up is taken again, by a ticket or by the worker that asks for
			// more.
			if _, next := w.finish(running[0], queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p")}); next == nil {
				t.Error("the worker that was done was given nothing more")
			}
			w.finish(running[1], queue.Finish{Ending: queue.EndOK})
			if flow(10); len(running) != tc.want+1 {
				t.Errorf("%d started instead of one that ended, want one", len(running)-tc.want)
			}
			if tickets, _, _ := w.release(50); len(tickets) > 0 {
				t.Errorf("%v released beyond the cap", tickets)
			}
		})
	}
}

// A pool that fell silent has no places until it beats again.
func TestSilentPoolsHaveNoPlaces(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.offers("a", 1)
	_, err := w.gate.Beat(t.Context(), "p", 3, 6*time.Second, nil)
	w.must(err)
	w.pass(6*second + 1)
	if tickets, _, _ := w.release(5); len(tickets) > 0 {
		t.Errorf("%v released to a pool that is silent", tickets)
	}
	w.pool("p", 3)
	if tickets, _, _ := w.release(5); len(tickets) != 1 {
		t.Errorf("%d tickets for a pool that beats again", len(tickets))
	}
}

// Jobs of a pool that vanished hold none of the places of one that lives.
func TestDeadPoolsHoldNoPlaces(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.setDownstream(DownstreamPolicy{Lease: time.Hour})
	ctx := t.Context()
	_, err := w.gate.Beat(ctx, "gone", 3, 6*time.Second, nil)
	w.must(err)
	w.offers("a", 10)
	var lost []*queue.Grant
	for range 3 {
		tickets, _, _ := w.release(1)
		g, _ := w.enter(tickets[0], "gone")
		lost = append(lost, g)
		w.pass(100 * milli)
	}
	if tickets, _, _ := w.release(5); len(tickets) > 0 {
		t.Fatalf("%d tickets beyond three places", len(tickets))
	}
	w.pass(10 * second)
	w.pool("new", 2)
	if tickets, _, _ := w.release(5); len(tickets) != 2 {
		t.Errorf("%d tickets for two places of a new pool", len(tickets))
	}
	// The vanished pool is forgotten, and comes back with its jobs still running: they count.
	w.pass(120 * second)
	w.pool("new", 0)
	w.release(5)
	w.pool("gone", 4)
	w.pass(6 * second)
	if tickets, _, _ := w.release(5); len(tickets) != 1 {
		t.Errorf("%d tickets for a pool with four places that runs three jobs", len(tickets))
	}
	w.must(w.gate.Leave(ctx, "gone"))
	for _, g := range lost {
		w.finish(g, queue.Finish{Ending: queue.EndOK})
	}
	left, err := w.rdb.HGetAll(ctx, w.q.PoolsKey()).Result()
	w.must(err)
	if len(left) != 1 || left["new"] == "" {
		t.Errorf("the pools are %v, want new alone", left)
	}
}

// A pool that has beaten before learns that Redis has lost it from the call that would bring it
// back.
func TestForgottenPoolIsNotMadeAnew(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	ctx := t.Context()
	beat := func() bool {
		_, known, err := w.gate.BeatAgain(ctx, "again", 3, 6*time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	if beat() {
		t.Error("known before its first beat")
	}
	if _, err := w.gate.Beat(ctx, "again", 3, 6*time.Second, nil); err != nil {
		t.Fatal(err)
	}
	if !beat() {
		t.Error("not known after its first beat")
	}
	if err := w.rdb.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if beat() {
			t.Error("known although Redis has forgotten it")
		}
	}
}
