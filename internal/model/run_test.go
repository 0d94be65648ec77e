package model_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
)

// world is a downstream, and a play for it.
type world struct {
	common buckets.Rate
	tenant map[string]model.Policy
	play   model.Play
	simple bool // nothing but the tenants' own rates decides when a job starts
}

func draw(t *rapid.T) world {
	w := world{tenant: map[string]model.Policy{}, simple: rapid.Bool().Draw(t, "simple"), play: model.Play{Places: 1000}}
	rates := rapid.SampledFrom([]buckets.Rate{buckets.PerSecond(1), buckets.PerSecond(7), buckets.PerSecond(100),
		{Events: 3, Period: 33333 * time.Microsecond}})
	if !w.simple {
		w.play.Places = rapid.IntRange(1, 6).Draw(t, "places")
		if rapid.Bool().Draw(t, "shared") {
			w.common = rates.Draw(t, "common")
		}
	}
	for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "tenants")] {
		p := model.Policy{Rate: rates.Draw(t, "rate"), Depth: rapid.Int64Range(1, 20).Draw(t, "depth"), MaxAttempts: 2}
		if !w.simple {
			p.Weight, p.MaxInFlight = rapid.Int64Range(1, 3).Draw(t, "weight"), rapid.Int64Range(1, 4).Draw(t, "cap")
			for range rapid.IntRange(0, 2).Draw(t, "pauses") {
				w.play.Orders = append(w.play.Orders, model.Order{At: rapid.Int64Range(0, 3_000_000).Draw(t, "at"),
					Tenant: rapid.SampledFrom([]string{name, ""}).Draw(t, "whom"), Pause: rapid.Int64Range(0, 2_000_000).Draw(t, "pause")})
			}
		}
		w.tenant[name] = p
		for i := range rapid.IntRange(0, 30).Draw(t, "jobs") {
			a := model.Arrival{At: rapid.Int64Range(0, 3_000_000).Draw(t, "at"), Tenant: name, Offer: model.Offer{ID: fmt.Sprint("j", i)},
				Runs: time.Duration(rapid.IntRange(0, 300).Draw(t, "runs")) * time.Millisecond}
			if !w.simple {
				a.Ends = rapid.SliceOfN(rapid.SampledFrom([]model.Ending{model.EndOK, model.EndError, model.EndDead, model.EndThrottled,
					model.EndBack}), 0, 2).Draw(t, "ends")
				a.After = 100 * time.Millisecond
			}
			w.play.Arrivals = append(w.play.Arrivals, a)
		}
	}
	return w
}

// TestRunKeepsThePromises: spacing, first in first out, the bound, the rate where nothing else
// holds jobs up, no more at once than may be, and an end for all that was accepted.
func TestRunKeepsThePromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := draw(t)
		d := model.New(0, model.DownstreamPolicy{Rate: w.common})
		for name, p := range w.tenant {
			d.SetTenant(name, p)
		}
		record := model.Run(d, w.play)

		accepted, since := int64(0), map[string]int64{}
		for i, a := range record.Answers {
			from := w.play.Arrivals[i]
			if a.Status == model.Accepted {
				accepted++
				since[from.Tenant+from.ID] = from.At
			} else if a.Status != model.Full {
				t.Errorf("%+v: %+v", from, a)
			}
			if depth := w.tenant[from.Tenant].Depth; int64(a.Position) > depth {
				t.Errorf("accepted at place %d of %d", a.Position, depth)
			}
		}
		if ended := d.Counts["done"] + d.Counts["dead"]; accepted != d.Counts["accepted"] || accepted != ended {
			t.Errorf("%d were told that they are accepted, %d were, %d have ended", accepted, d.Counts["accepted"], ended)
		}
		attempts, last, oldest := map[string]int64{}, map[string]int64{}, map[string]int64{}
		for i, s := range record.Starts {
			if attempts[s.Tenant+s.ID]++; s.Attempt != attempts[s.Tenant+s.ID] {
				t.Errorf("start %d of %s was preceded by %d", s.Attempt, s.ID, attempts[s.Tenant+s.ID]-1)
			}
			if s.At < s.Slot || s.At > s.Slot+20_000 {
				t.Errorf("%s began %d µs after its slot", s.ID, s.At-s.Slot)
			}
			interval := func(r buckets.Rate) int64 { return r.Period.Microseconds() / r.Events }
			own := interval(w.tenant[s.Tenant].Rate)
			if prev, ok := last[s.Tenant]; ok {
				if s.Slot-prev < own {
					t.Errorf("%s: slots %d and %d, want them %d µs apart", s.Tenant, prev, s.Slot, own)
				}
				if by := max(prev+own+1, since[s.Tenant+s.ID]); w.simple && s.Slot > by {
					t.Errorf("%s of %s starts at %d, want it by %d", s.ID, s.Tenant, s.Slot, by)
				}
			}
			last[s.Tenant] = s.Slot
			if i > 0 && !w.common.IsZero() && s.Slot-record.Starts[i-1].Slot < interval(w.common) {
				t.Errorf("starts of the downstream at %d and %d", record.Starts[i-1].Slot, s.Slot)
			}
			if at := since[s.Tenant+s.ID]; s.Attempt == 1 {
				if at < oldest[s.Tenant] {
					t.Errorf("%s of %s starts after one that came later", s.ID, s.Tenant)
				}
				oldest[s.Tenant] = max(at, oldest[s.Tenant])
			}
		}
		atOnce(t, record.Starts, w.play.Places)
		for name, p := range w.tenant {
			if p.MaxInFlight > 0 {
				atOnce(t, slices.DeleteFunc(slices.Clone(record.Starts), func(s model.Start) bool { return s.Tenant != name }), int(p.MaxInFlight))
			}
		}
	})
}

// atOnce checks that no more starts run at once than may.
func atOnce(t *rapid.T, starts []model.Start, most int) {
	for _, s := range starts {
		n := 0
		for _, o := range starts {
			if o.At <= s.At && s.At < o.Ended {
				n++
			}
		}
		if n > most {
			t.Errorf("%d run at %d, want at most %d", n, s.At, most)
		}
	}
}

// The 700th slot at 7/s is 100 s after the first.
func TestRunKeepsTheRateExactly(t *testing.T) {
	d := model.New(0, model.DownstreamPolicy{})
	d.SetTenant("a", model.Policy{Rate: buckets.PerSecond(7), Depth: 1000})
	var play model.Play
	play.Places = 4
	for i := range 701 {
		play.Arrivals = append(play.Arrivals, model.Arrival{Tenant: "a", Offer: model.Offer{ID: fmt.Sprint(i)}, Runs: 200 * time.Millisecond})
	}
	starts := model.Run(d, play).Starts
	if got := starts[700].Slot - starts[0].Slot; got != 100_000_000 {
		t.Errorf("the 701st slot is %d µs after the first, want 100 s", got)
	}
}

// A job that runs for longer than a lease keeps its lease; so does another next to it.
func TestRunKeepsLeases(t *testing.T) {
	d := model.New(0, model.DownstreamPolicy{Lease: 3 * time.Second})
	var play model.Play
	play.Places = 2
	for _, id := range []string{"long", "short", "next"} {
		play.Arrivals = append(play.Arrivals, model.Arrival{Tenant: "a", Offer: model.Offer{ID: id}, Runs: 20 * time.Second})
	}
	play.Arrivals[1].Runs = time.Second
	record := model.Run(d, play)
	for _, s := range record.Starts {
		if s.Attempt != 1 || s.Became != "done" {
			t.Errorf("%+v, want each job done with one start", s)
		}
	}
	if n := d.Counts["crashed"]; n > 0 || len(record.Starts) != 3 {
		t.Errorf("%d leases were lost, %d starts; want none, and 3", n, len(record.Starts))
	}
}

// A plan begins with what waits already, and ends when all has.
func TestRunBeginsWithWhatWaits(t *testing.T) {
	d := model.New(0, model.DownstreamPolicy{})
	d.Offer("a", model.Offer{ID: "waits"}, model.Offer{ID: "later", Delay: time.Second})
	record := model.Run(d, model.Play{Places: 1, Arrivals: []model.Arrival{{Tenant: "a", Offer: model.Offer{ID: "new"}}}})
	var got []string
	for _, s := range record.Starts {
		got = append(got, fmt.Sprint(s.ID, " ", s.Slot))
	}
	if want := []string{"waits 0", "new 100000", "later 1000000"}; !slices.Equal(got, want) || record.Until != 1_000_000 {
		t.Errorf("%v until %d, want %v until the last of them", got, record.Until, want)
	}
}

// A pause calls back those whose slots have not come, even one that the downstream asked for: they
// start anew, and what did not happen is no start.
func TestRunPauseRecalls(t *testing.T) {
	for _, throttled := range []bool{false, true} {
		d := model.New(0, model.DownstreamPolicy{Log: true})
		play := model.Play{Places: 5}
		for _, id := range []string{"first", "second"} {
			play.Arrivals = append(play.Arrivals, model.Arrival{Tenant: "a", Offer: model.Offer{ID: id}, Runs: 85 * time.Millisecond, After: time.Second})
		}
		want := []model.Start{{"a", "first", 1, 0, 0, 85_000, "done"}, {"a", "second", 1, 1_085_000, 1_085_000, 1_170_000, "done"}}
		if throttled {
			play.Arrivals[0].Ends = []model.Ending{model.EndThrottled}
			want = []model.Start{{"a", "first", 1, 0, 0, 85_000, "back"}, {"a", "first", 2, 1_085_000, 1_085_000, 1_170_000, "done"},
				{"a", "second", 1, 1_185_000, 1_185_000, 1_270_000, "done"}}
		} else {
			play.Orders = []model.Order{{At: 85_000, Tenant: "a", Pause: 1_000_000}}
		}
		if got := model.Run(d, play).Starts; !slices.Equal(got, want) {
			t.Errorf("throttled %v: %+v, want %+v", throttled, got, want)
		}
		if back := "f a second 1 back - -15000"; !slices.Contains(d.Log, back) {
			t.Errorf("throttled %v: the log is %q, want %q in it", throttled, d.Log, back)
		}
	}
}

// BenchmarkRun plays a hundred thousand jobs of ten tenants that share a rate.
func BenchmarkRun(b *testing.B) {
	play := model.Play{Places: 100}
	for i := range 100_000 {
		play.Arrivals = append(play.Arrivals, model.Arrival{At: int64(i) * 1000, Tenant: fmt.Sprint("t", i%10), Offer: model.Offer{ID: fmt.Sprint(i)},
			Runs: 50 * time.Millisecond})
	}
	for b.Loop() {
		d := model.New(0, model.DownstreamPolicy{Rate: buckets.PerSecond(900), Defaults: model.Policy{Rate: buckets.PerSecond(200)}})
		model.Run(d, play)
	}
	b.ReportMetric(float64(len(play.Arrivals))*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// Two strict grids rarely fit, so tenants whose rates add up to their downstream's get less. Where
// only the downstream's spacing is strict they get what they were promised, and no more than one
// start more in any window. Many tenants that come due at the same instant may each be put off for
// longer than they keep their places.
func TestSharedSpacingKeepsRates(t *testing.T) {
	const seconds, window = 200, 2 // of the play, and of what is looked at
	for _, tc := range []struct {
		rates []int64
		least float64
	}{
		{[]int64{6, 4}, 0.995}, {[]int64{7, 3}, 0.995}, {[]int64{9, 1}, 0.995}, {[]int64{5, 3, 2}, 0.995},
		{[]int64{2, 2, 2, 2, 2}, 0.995}, {[]int64{4, 3, 1, 1, 1}, 0.94},
	} {
		kept := map[bool]float64{}
		for _, shared := range []bool{false, true} {
			d, play := model.New(0, model.DownstreamPolicy{Rate: buckets.PerSecond(10), Shared: shared}), model.Play{Places: 5}
			for i, r := range tc.rates {
				name := fmt.Sprint("t", i)
				d.SetTenant(name, model.Policy{Rate: buckets.PerSecond(r), Depth: r * seconds, Weight: r})
				for j := range r * seconds {
					play.Arrivals = append(play.Arrivals, model.Arrival{Tenant: name, Offer: model.Offer{ID: fmt.Sprint(j)}, Runs: 90 * time.Millisecond})
				}
			}
			slots, last := map[string][]int64{}, int64(-100_000)
			for _, s := range model.Run(d, play).Starts {
				if s.Slot-last < 100_000 {
					t.Errorf("%v: starts of the downstream at %d and %d", tc.rates, last, s.Slot)
				}
				last = s.Slot
				slots[s.Tenant] = append(slots[s.Tenant], s.Slot)
			}
			kept[shared] = 1.0
			for i, r := range tc.rates {
				own := slots[fmt.Sprint("t", i)]
				in, _ := slices.BinarySearch(own, seconds*1_000_000)
				kept[shared] = min(kept[shared], float64(in)/float64(r*seconds))
				most := r*window + 1
				if shared {
					most++
				}
				for j := int(most); j < len(own); j++ {
					if took := own[j] - own[j-int(most)]; took < window*1_000_000 {
						t.Errorf("%v, shared %t: %d starts of a tenant at %d/s within %d µs", tc.rates, shared, most+1, r, took)
					}
				}
			}
		}
		t.Logf("%v: of its rate, the tenant that fares worst gets %.1f %% with strict spacing, %.1f %% with shared",
			tc.rates, 100*kept[false], 100*kept[true])
		if kept[true] < tc.least {
			t.Errorf("%v: a tenant gets %.1f %% of its rate with shared spacing", tc.rates, 100*kept[true])
		}
	}
}
