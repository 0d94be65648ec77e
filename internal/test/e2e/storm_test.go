package e2e

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestKillStorm kills a process every 1.5 s for 12 s, a scheduler or a worker or both in one, and
// Redis once. There is a backlog all the time: nothing is lost, and nothing is slower except what
// was killed. The soak does the same for as long as one likes.
func TestKillStorm(t *testing.T) {
	notShort(t)
	t.Parallel()
	const storm, every = 12 * time.Second, 1500 * time.Millisecond
	r := newServerRig(t, redistest.AOF(), redistest.Acknowledged())
	s := newSeededStorm(r)
	r.downstream(shaper.DownstreamPolicy{Lease: 2 * time.Second, MaxCrashes: 100})
	for i, n := range []int64{2, 5, 10, 20} {
		s.backlog(fmt.Sprintf("t%d", i), n, int(n)*int(storm/time.Second), play{For: 20 * time.Millisecond})
	}
	const ttl = time.Second
	s.daemons = r.startAll(
		role{Scheduler: true, TicketTTL: ttl, Worker: true},
		role{Scheduler: true, TicketTTL: ttl},
		role{Worker: true},
	)
	r.starts(1)
	begun := history.Now()
	kills, away := int(storm/every), time.Duration(0)
	redis := 1 + s.chance.IntN(kills-2)
	for i := range kills {
		next := time.Now().Add(every)
		if i == redis {
			killed := time.Now()
			s.killRedis()
			away = time.Since(killed)
		}
		s.killDaemon()
		time.Sleep(time.Until(next))
	}
	ended := history.Now()
	s.settle()
	report := s.judged()
	kept := s.kept(begun, ended)
	t.Logf("%d kills and one of Redis: %v; %.1f %% of the rate kept; the machine stalled for up to %v", kills, report, 100*kept, r.weather.longest())
	var nominal, excused float64
	for _, rate := range s.rates {
		nominal += rate.Per(time.Duration(ended - begun))
		excused += r.weather.cost(rate.Interval())
	}
	if kept < 0.9-excused/nominal-float64(away)/float64(ended-begun) {
		t.Errorf("%.1f %% of the rate kept with a backlog, want at least 90 %% of the time but the %v without Redis; stalls of the machine excuse %.0f slots",
			100*kept, away, excused)
	}
}

// TestStopStorm stops a process every 1.5 s for 3 s, which is longer than a lease. Workers hold
// slots that have not come, so that many stops fall between grant and start; half of the handlers
// do not heed the end of their lease, so that their late reports must be refused. It goes on until
// both have happened.
func TestStopStorm(t *testing.T) {
	notShort(t)
	t.Parallel()
	const storm, most, every, stop = 9 * time.Second, 3 * time.Minute, 1500 * time.Millisecond, 3 * time.Second
	r := newRig(t)
	s := newSeededStorm(r)
	r.downstream(shaper.DownstreamPolicy{Lease: 2 * time.Second, MaxCrashes: 100, Lead: 90 * time.Millisecond, DepartureLog: 100_000})
	plays := map[string]play{"deaf": {For: 300 * time.Millisecond, Deaf: true}, "heeding": {For: 300 * time.Millisecond}}
	for tenant, p := range plays {
		s.backlog(tenant, 10, 120, p)
	}
	s.daemons = r.startBoth(4)
	r.starts(1)
	stops, stale, held := 0, 0, 0
	for begun := time.Now(); time.Since(begun) < storm || (stale == 0 || held == 0) && time.Since(begun) < most; {
		next := time.Now().Add(every)
		for tenant, p := range plays {
			// Enough for a turn, and to spare.
			if info, err := r.admin.Tenant(t.Context(), tenant); err == nil && info.Level() < 30 {
				r.offer(tenant, 30, p)
			}
		}
		if p := s.daemons[s.chance.IntN(len(s.daemons))]; !s.stopped[p] {
			stops++
			s.stopped[p] = true
			p.stop()
			s.after(stop, func() { delete(s.stopped, p); p.goOn() })
		}
		for time.Now().Before(next) {
			s.mendDue()
			time.Sleep(10 * time.Millisecond)
		}
		stale, held = s.refused(), s.held()
	}
	s.mendAll()
	s.settle()
	report := s.judged()
	stale, held = s.refused(), s.held()
	t.Logf("%d stops: %v; %d late reports refused, %d slots held by somebody who was stopped", stops, report, stale, held)
	if stale == 0 || held == 0 {
		t.Errorf("%d late reports, and %d slots granted and not used: the storm hit nothing", stale, held)
	}
}

// refused counts late reports that were refused, by the logs of the daemons.
func (s *storm) refused() (n int) {
	s.t.Helper()
	for _, p := range s.daemons {
		text, err := os.ReadFile(p.stderr)
		s.must(err)
		n += bytes.Count(text, []byte("somebody else owns it"))
	}
	return n
}

// held counts slots that came and went without a start while some process was stopped.
func (s *storm) held() (n int) {
	s.t.Helper()
	type slot struct {
		tenant string
		at     int64
	}
	started, since := map[slot]bool{}, map[int]int64{}
	type stop struct{ from, until int64 }
	var stops []stop
	for _, e := range s.history() {
		switch e.Kind {
		case history.Start:
			started[slot{e.Tenant, e.Slot}] = true
		case history.Cut:
			since[e.PID] = e.Wall
		case history.Go:
			stops = append(stops, stop{since[e.PID], e.Wall})
		}
	}
	s.must(s.admin.DepartureLog(s.t.Context(), 0, func(e shaper.LogEntry) error {
		at := e.Slot.UnixMicro()
		if e.Kind == shaper.LogGranted && !started[slot{e.Tenant, at}] && slices.ContainsFunc(stops, func(s stop) bool { return s.from <= at && at <= s.until }) {
			n++
		}
		return nil
	}))
	return n
}

// TestRateIsKeptUnderRetries runs ten tenants, whose every twentieth job fails, on three workers
// and two schedulers. By their slots, all are as fast as their rates.
func TestRateIsKeptUnderRetries(t *testing.T) {
	notShort(t)
	const tenants, jobs, perSec = 10, 120, 20
	r := newRig(t)
	s := newSeededStorm(r)
	p := rate(perSec)
	p.Backoff = quickly
	r.startAll(role{Scheduler: true, Worker: true}, role{Scheduler: true, Worker: true}, role{Worker: true})
	for i := range tenants {
		tenant := fmt.Sprintf("t%d", i)
		r.tenant(tenant, p)
		s.setRate(tenant, p.Rate)
		for n := 0; n < jobs; n += 20 {
			r.offer(tenant, 1, play{Fail: 1})
			r.offer(tenant, 19, play{})
		}
	}
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(perSec)), history.Accounts(h))
	var least float64 = 1
	var late []int64
	for i := range tenants {
		starts := h.Of(history.Start).Tenant(fmt.Sprintf("t%d", i))
		starts = starts[:jobs] // in the end there is no backlog behind those that failed
		least = min(least, keptBySlots(starts, perSecond(perSec)))
		for _, e := range starts {
			late = append(late, e.Wall-e.Slot)
		}
	}
	slices.Sort(late)
	p99 := time.Duration(late[len(late)*99/100]) * time.Microsecond
	t.Logf("%d starts, at least %.2f %% of the rate kept, p99 %v after the slot; the machine stalled for up to %v",
		len(h.Of(history.Start)), 100*least, p99, r.weather.longest())
	if excused := r.weather.cost(p.Rate.Interval()); least < 0.99-excused/jobs || least > 1.0001 {
		t.Errorf("%.2f %% of the rate kept, want at least 99 %%; stalls of the machine excuse %.0f of %d slots", 100*least, excused, jobs)
	}
}

// TestManyRatesAtOnce drains backlogs of tenants whose rates are far apart, and odd, by the same
// workers. Slower ones would take long: a tenant first waits an interval, counted from the start of
// Redis.
func TestManyRatesAtOnce(t *testing.T) {
	notShort(t)
	t.Parallel()
	const span = 4 * time.Second
	r := newRig(t)
	s := newSeededStorm(r)
	for i, rate := range []buckets.Rate{
		{Events: 41, Period: time.Minute}, buckets.PerSecond(7), buckets.PerSecond(13),
		buckets.PerSecond(101), buckets.PerSecond(333),
	} {
		tenant := fmt.Sprintf("t%d", i)
		r.tenant(tenant, shaper.Policy{Depth: 10_000})
		s.setRate(tenant, rate)
		s.rates[tenant] = rate
	}
	r.startAll(role{Scheduler: true, Worker: true, Lean: true, Places: 40}, role{Scheduler: true, Worker: true, Lean: true, Places: 40})
	for tenant, rate := range s.rates {
		r.offer(tenant, 1+int(rate.Per(span)), play{})
	}
	s.settle()
	report := s.judged()
	h := r.history()
	for tenant, rate := range s.rates {
		if starts := h.Of(history.Start).Tenant(tenant); len(starts) > 1 {
			kept := keptBySlots(starts, history.Rule{Rate: rate})
			t.Logf("%v: %d starts, %.2f %% of the rate kept", rate, len(starts), 100*kept)
			if excused := r.weather.cost(rate.Interval()); kept > 1.0001 || kept < 0.99-excused/float64(len(starts)) {
				t.Errorf("%v: %.2f %% of the rate kept, want at least 99 %%; stalls of the machine excuse %.0f slots", rate, 100*kept, excused)
			}
		}
	}
	t.Logf("%v; the machine stalled for up to %v", report, r.weather.longest())
}

// keptBySlots is the share of its rate that a tenant kept, by its slots.
func keptBySlots(starts history.History, r history.Rule) float64 {
	first, last := starts[0].Slot, starts[0].Slot
	for _, e := range starts {
		first, last = min(first, e.Slot), max(last, e.Slot)
	}
	needs := float64(len(starts)-1) * float64(r.Rate.Period) / float64(r.Rate.Events) / 1000
	return needs / float64(last-first)
}

func newSeededStorm(r *rig) *storm {
	seed := uint64(time.Now().UnixNano())
	r.t.Logf("seed %d", seed)
	keepHistory(r, seed, 0)
	return newStorm(r, seed, nil)
}

// backlog makes a tenant with n starts a second, and offers it jobs.
func (s *storm) backlog(tenant string, n int64, jobs int, p play) {
	s.t.Helper()
	s.tenants, s.rates[tenant] = append(s.tenants, tenant), buckets.PerSecond(n)
	s.tenant(tenant, shaper.Policy{Depth: max(jobs, 1), Backoff: quickly})
	s.setRate(tenant, s.rates[tenant])
	s.offer(tenant, jobs, p)
}

// kept is the share of the tenants' rates that was kept between two instants, by slots. It requires
// a backlog all that time, and counts a tenant whose backlog was used up as one that kept its rate.
func (s *storm) kept(from, until int64) float64 {
	h := s.history()
	var got, want float64
	for tenant, rate := range s.rates {
		nominal := float64(until-from) / float64(rate.Period) * float64(rate.Events)
		starts := h.Of(history.Start).Tenant(tenant).Since(from).Until(until)
		if len(starts) > 0 && len(h.Of(history.Start).Tenant(tenant).Since(until)) == 0 {
			nominal = min(nominal, float64(len(starts)))
		}
		got += min(float64(len(starts)), nominal)
		want += nominal
	}
	return got / want
}

// judged checks all that was promised, and returns the report.
func (s *storm) judged() *history.Report {
	s.t.Helper()
	report, err := history.Judge(s.path, history.Terms{Tolerance: shaper.DefaultTolerance, Slack: time.Millisecond})
	s.must(err)
	s.weather.refuse(s.t, report.Starts, report.Violations())
	s.conserved()
	s.tidy()
	return report
}
