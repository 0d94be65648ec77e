package app

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

// scrapes watches the counters of a downstream from scrape to scrape.
type scrapes struct {
	t    *testing.T
	reg  *prometheus.Registry
	last map[string]float64 // by name and tenant, at the last scrape
}

func newScrapes(t *testing.T, r statsReader) *scrapes {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector([]string{"d"}, []statsReader{r}, slog.New(slog.DiscardHandler)))
	return &scrapes{t: t, reg: reg, last: map[string]float64{}}
}

// look scrapes, and returns what all series of each counter say together. No series may have gone
// back.
func (s *scrapes) look() map[string]float64 {
	s.t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	now, sums := map[string]float64{}, map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetCounter() == nil {
				continue
			}
			key, v := f.GetName(), m.GetCounter().GetValue()
			sums[key] += v
			for _, l := range m.GetLabel() {
				if l.GetName() == "tenant" {
					key += " of " + l.GetValue()
				}
			}
			if v < s.last[key] {
				s.t.Errorf("%s went back from %v to %v", key, s.last[key], v)
			}
			now[key] = v
		}
	}
	s.last = now
	return sums
}

func (s *scrapes) of(counter, tenant string) float64 {
	return s.last["shaper_"+counter+"_total of "+tenant]
}

// Whichever tenants are shown, come, go, are forgotten or come back: no series goes back from one
// scrape to the next, and all together are the downstream's totals.
func TestCountersOnlyGrow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{3, 150, 1500} {
		f := &fakeStats{}
		s := newScrapes(t, f)
		all := tenants(n, 0)
		f.stats.Counters.Accepted = 5_000 // the counts of tenants that are gone
		for i := range all {
			all[i].Counters.Accepted = r.Int64N(100)
			f.stats.Counters.Accepted += all[i].Counters.Accepted
		}
		for range 60 {
			var lag int64
			for i := range all {
				all[i].Waiting = r.IntN(20) * r.IntN(2)
				if r.IntN(50) == 0 { // forgotten, and perhaps back
					all[i].Counters = shaper.Counters{}
				}
				did := r.Int64N(3) * r.Int64N(2)
				all[i].Counters.Accepted += did
				f.stats.Counters.Accepted += did
				if r.IntN(20) == 0 { // after the totals were read
					all[i].Counters.Accepted++
					lag++
				}
			}
			r.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
			f.stats.ByTenant, f.stats.Tenants = all[:n-r.IntN(n)/2], n
			want := float64(f.stats.Counters.Accepted)
			if sum := s.look()["shaper_accepted_total"]; sum != want {
				t.Fatalf("%d tenants: all series say %v, want %v", n, sum, want)
			}
			f.stats.Counters.Accepted += lag
		}
	}
}

// While all tenants have series, each series says what is known of its tenant, even if the totals
// were read a moment before.
func TestFewTenantsSayWhatTheyCounted(t *testing.T) {
	f := &fakeStats{stats: shaper.Stats{Tenants: 3, ByTenant: tenants(3, 10), Counters: shaper.Counters{Accepted: 25}}}
	s := newScrapes(t, f)
	s.look()
	f.stats.ByTenant, f.stats.Counters.Accepted = tenants(4, 12), 48 // one of them is new
	s.look()
	for _, tenant := range f.stats.ByTenant {
		if n := s.of("accepted", tenant.Name); n != 12 {
			t.Errorf("%s: %v, want 12", tenant.Name, n)
		}
	}
	if n, told := s.last["shaper_accepted_total of _other"]; told {
		t.Errorf("there are no other tenants, but their series says %v", n)
	}
}

// A tenant that gets series begins with what it did since the last scrape, and one that loses them
// leaves theirs to the others.
func TestWhoIsShownChanges(t *testing.T) {
	f := &fakeStats{stats: shaper.Stats{Tenants: 101, ByTenant: tenants(101, 10), Counters: shaper.Counters{Accepted: 1010}}}
	s := newScrapes(t, f)
	s.look()
	if n := s.of("accepted", otherTenant); n != 10 {
		t.Errorf("the others: %v, want the 10 of t000", n)
	}
	f.stats.ByTenant[0].Waiting = 1 // no more than t001 has, which stays
	s.look()
	if n := s.of("accepted", "t001"); n != 10 {
		t.Errorf("t001: %v, want it shown still", n)
	}
	f.stats.ByTenant[0].Waiting, f.stats.ByTenant[0].Counters.Accepted = 3, 14
	f.stats.Counters.Accepted += 4
	s.look()
	if was, is, other := s.of("accepted", "t001"), s.of("accepted", "t000"), s.of("accepted", otherTenant); was != 0 || is != 4 || other != 20 {
		t.Errorf("t001 %v, t000 %v, the others %v; want none, 4, 20", was, is, other)
	}
}

// A Redis that has lost everything counts anew; after one that failed over and lost its last
// writes, the series wait until it has caught up.
func TestTotalsThatGoBack(t *testing.T) {
	f := &fakeStats{stats: shaper.Stats{Tenants: 1, ByTenant: tenants(1, 100), Counters: shaper.Counters{Accepted: 100}}}
	s := newScrapes(t, f)
	s.look()
	f.stats.ByTenant, f.stats.Counters.Accepted = tenants(1, 98), 98
	if sum := s.look()["shaper_accepted_total"]; sum != 100 {
		t.Errorf("%v after the last writes were lost, want 100 still", sum)
	}
	f.stats.ByTenant, f.stats.Counters.Accepted = tenants(1, 3), 3
	s.last = map[string]float64{}
	if sum := s.look()["shaper_accepted_total"]; sum != 3 {
		t.Errorf("%v after all was lost, want 3", sum)
	}
}

// More than a thousand tenants have jobs run, become idle, are removed or time out, and come back:
// the scrape says what happened, and so does Stats, whether it reads them all or not. What a scrape
// costs does not grow with them.
func TestCountersOfManyIdleTenants(t *testing.T) {
	testenv.Long(t, "makes thousands of tenants")
	rdb := redistest.Start(t).Client()
	ctx := t.Context()
	admin, err := shaper.NewAdmin(rdb, "d")
	must(t, err)
	client, err := shaper.NewClient(rdb, "d", shaper.ClientConfig{})
	must(t, err)
	gate := queue.NewGate(queue.Open(rdb, "d"))
	must(t, admin.SetDownstream(ctx, shaper.DownstreamPolicy{Defaults: shaper.Policy{Rate: buckets.PerSecond(1_000_000)}}))
	s := newScrapes(t, admin)
	s.look()
	jobs := make(chan queue.Ticket, 10_000)
	tickets := dispatch(func(l []string) {
		for _, text := range l {
			k, err := queue.ParseTicket(text)
			must(t, err)
			jobs <- k
		}
	})
	scheduler, err := shaper.NewScheduler(rdb, "d", tickets, shaper.SchedulerConfig{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	must(t, scheduler.Start(context.WithoutCancel(ctx)))
	defer scheduler.Stop()
	run := func(from, to int) { // one job of each tenant
		t.Helper()
		var specs []shaper.Spec
		for i := from; i < to; i++ {
			specs = append(specs, shaper.Spec{Tenant: fmt.Sprintf("t%04d", i), Type: "x"})
		}
		_, err := gate.Beat(ctx, "p", 100_000, time.Hour, nil)
		must(t, err)
		for _, o := range client.OfferMany(ctx, specs) {
			must(t, o.Err)
		}
		for done := 0; done < to-from; {
			var k queue.Ticket
			select {
			case k = <-jobs:
			case <-time.After(30 * time.Second):
				t.Fatalf("%d of %d jobs were started within 30s", done, to-from)
			}
			if g, _, err := gate.Enter(ctx, k, queue.NewToken("p")); err != nil || g != nil {
				must(t, err)
				_, err = gate.Finish(ctx, g, queue.Finish{Ending: queue.EndOK, Began: queue.BeganAfter(0)})
				must(t, err)
				done++
			}
		}
	}
	agree := func(when string, want int64) {
		t.Helper()
		sums := s.look()
		for _, counter := range []string{"accepted", "started", "done"} {
			if n := sums["shaper_"+counter+"_total"]; n != float64(want) {
				t.Errorf("%s: %s %v by the series, want %d", when, counter, n, want)
			}
		}
		for _, all := range []bool{false, true} {
			st, err := admin.Stats(ctx, all)
			must(t, err)
			if c := st.Counters; c.Accepted != want || c.Started != want || c.Done != want {
				t.Errorf("%s: Stats(%v) says %+v, want %d", when, all, c, want)
			}
		}
	}
	run(0, 1200)
	agree("all idle", 1200)
	run(1100, 1300)
	agree("some came back", 1400)
	st, err := admin.StatsOfLatest(ctx, readMost)
	must(t, err)
	if len(st.ByTenant) != readMost || st.Tenants != 1300 {
		t.Errorf("a scrape reads %d of %d idle tenants, want %d", len(st.ByTenant), st.Tenants, readMost)
	}
	for i := range 50 {
		must(t, admin.Remove(ctx, fmt.Sprintf("t%04d", i)))
		must(t, rdb.Del(ctx, fmt.Sprintf("shaper:{d}:t:t%04d", 1250+i)).Err()) // as when it times out
	}
	agree("some are gone", 1400)
	run(0, 60)
	run(1240, 1300)
	agree("and are back", 1520)
	s = newScrapes(t, admin)
	agree("after a restart of the daemon", 1520)
}

type dispatch func([]string)

func (d dispatch) Dispatch(_ context.Context, l []string) error { d(l); return nil }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
