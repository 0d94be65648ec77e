package shaper

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// TestRecordedRunPlaysAgain: when the same jobs arrive and end again, the model grants the slots
// that the scripts granted in a run, as their departure log has them, to the µs: with bursts of
// tenants that share a rate, failures, throttling, pauses and changed rates.
func TestRecordedRunPlaysAgain(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	first := rand.Uint64() >> 16
	runs := uint64(20)
	if testing.Short() {
		runs = 5
	}
	for seed := first; seed < first+runs && !t.Failed(); seed++ {
		playAgain(t, newWorld(t, rdb), seed)
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}
}

func playAgain(t *testing.T, w *world, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	to := model.DownstreamPolicy{Log: true}
	if seed%2 == 0 {
		to.Rate = pick(r, rates)
	}
	play := model.Play{From: t0, Places: 1 + r.IntN(6)}
	d := model.New(t0, to)
	d.Epoch = 1
	d.SetDownstream(to)
	scripts := scripted{w}
	scripts.SetDownstream(to)
	policy := func() model.Policy {
		return model.Policy{Rate: pick(r, rates), Depth: 5 + r.Int64N(10), Weight: 1 + r.Int64N(3), MaxInFlight: 1 + r.Int64N(4), MaxAttempts: 2}
	}
	for _, name := range []string{"a", "b", "c"}[:1+seed%3] {
		p := policy()
		d.SetTenant(name, p)
		scripts.SetTenant(name, p)
		for i := range 20 {
			play.Arrivals = append(play.Arrivals, model.Arrival{At: t0 + r.Int64N(3*second), Tenant: name,
				Offer: model.Offer{ID: fmt.Sprint("j", i), Body: "A", Call: fmt.Sprint(name, i), Delay: pick(r, []time.Duration{0, 0, time.Second})},
				Runs:  time.Duration(r.IntN(200)) * time.Millisecond, After: 100 * time.Millisecond,
				Ends: pick(r, [][]model.Ending{nil, nil, {model.EndError}, {model.EndThrottled, model.EndDead}})})
		}
		changed := policy()
		play.Orders = append(play.Orders, model.Order{At: t0 + r.Int64N(3*second), Tenant: name, Policy: &changed},
			model.Order{At: t0 + r.Int64N(3*second), Tenant: pick(r, []string{name, ""}), Pause: 500 * milli})
	}
	ran, played := model.Run(scripts, play), model.Run(d, play)
	if !reflect.DeepEqual(ran, played) {
		t.Errorf("the run was\n%+v\nand the play\n%+v", ran, played)
	}

	recorded := map[string]time.Time{} // of a start that was called off, the next with its number counts
	w.must(w.admin.DepartureLog(t.Context(), 0, func(e LogEntry) error {
		if e.Kind == LogGranted {
			recorded[fmt.Sprint(e.Tenant, e.ID, e.Attempt)] = e.Slot
		}
		return nil
	}))
	for _, s := range played.Starts {
		if slot := recorded[fmt.Sprint(s.Tenant, s.ID, s.Attempt)]; slot.UnixMicro() != s.Slot {
			t.Errorf("start %d of %s of %s is recorded at %v, and played at %v", s.Attempt, s.ID, s.Tenant, slot, time.UnixMicro(s.Slot))
		}
	}
	if len(played.Starts) < 10 {
		t.Errorf("%d starts: the play shows little", len(played.Starts))
	}
}

// With shared spacing, tenants whose rates add up to the downstream's have them, and the log says by
// how much each may keep its place.
func TestSharedSpacing(t *testing.T) {
	const seconds = 20
	w, to := newWorld(t, redistest.Open(t)), model.DownstreamPolicy{Rate: rate(10, time.Second), Shared: true, Log: true}
	scripts := scripted{w}
	scripts.SetDownstream(to)
	play := model.Play{From: t0, Places: 3}
	for name, perSecond := range map[string]int64{"a": 6, "b": 4} {
		scripts.SetTenant(name, model.Policy{Rate: rate(perSecond, time.Second)})
		for i := range perSecond * seconds {
			play.Arrivals = append(play.Arrivals, model.Arrival{At: t0, Tenant: name, Offer: model.Offer{ID: fmt.Sprint("j", i), Body: "A"}})
		}
	}
	model.Run(scripts, play)
	kept := map[string]int64{}
	w.must(w.admin.DepartureLog(t.Context(), 0, func(e LogEntry) error {
		switch {
		case e.Kind == LogGranted && e.Keep != 100*time.Millisecond, e.Kind == LogNoise:
			t.Errorf("an entry that says %+v", e)
		case e.Kind == LogGranted && e.Slot.UnixMicro() < t0+seconds*second:
			kept[e.Tenant]++
		}
		return nil
	}))
	if kept["a"] < 6*seconds*995/1000 || kept["b"] < 4*seconds*995/1000 {
		t.Errorf("%v starts in %d s, want 6 and 4 a second", kept, seconds)
	}
}
