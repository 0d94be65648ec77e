package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobshaper/jobshaper/shaper"
)

// counterSeries are the counters of a tenant that Redis keeps.
var counterSeries = []struct {
	desc *prometheus.Desc
	get  func(shaper.Counters) int64
}{
	{counter("accepted", "Jobs accepted."), func(c shaper.Counters) int64 { return c.Accepted }},
	{counter("started", "Starts: each first attempt, retry, recovery and requeue."), func(c shaper.Counters) int64 { return c.Started }},
	{counter("done", "Jobs done."), func(c shaper.Counters) int64 { return c.Done }},
	{counter("failed", "Starts that failed."), func(c shaper.Counters) int64 { return c.Failed }},
	{counter("retried", "Failed starts after which the job will start again."), func(c shaper.Counters) int64 { return c.Retried }},
	{counter("throttled", "Starts after which the downstream asked to slow down."), func(c shaper.Counters) int64 { return c.Throttled }},
	{counter("dead", "Jobs that used up their attempts."), func(c shaper.Counters) int64 { return c.Dead }},
	{counter("expired", "Jobs that waited too long and never started."), func(c shaper.Counters) int64 { return c.Expired }},
	{counter("cancelled", "Jobs cancelled."), func(c shaper.Counters) int64 { return c.Cancelled }},
	{counter("dropped", "Jobs dropped to make room."), func(c shaper.Counters) int64 { return c.Dropped }},
	{counter("crashed", "Starts whose worker vanished."), func(c shaper.Counters) int64 { return c.Crashed }},
	{counter("suspected", "Starts whose worker vanished while other jobs ran there, and that count against no job."), func(c shaper.Counters) int64 { return c.Suspected }},
	{counter("lost_tickets", "Tickets that no worker used; their jobs went back."), func(c shaper.Counters) int64 { return c.LostTickets }},
	{counter("forgotten_dead", "Dead jobs that were too old or too many to keep."), func(c shaper.Counters) int64 { return c.Forgotten }},
	{counter("forgotten_ends", "Ended jobs whose ids were forgotten before their retention was over, since there were more than max_ends."), func(c shaper.Counters) int64 { return c.Evicted }},
}

func counter(name, help string) *prometheus.Desc {
	return describe("shaper_"+name+"_total", help, "tenant")
}

// totals are the counters that a downstream's scrapes show: of the tenants that have series of
// their own, and of all others together. Which tenants have their own changes from scrape to
// scrape; yet no series goes back, and together they are the downstream's totals. So a tenant that
// gets series begins with what it did since the last scrape, and what it did before stays with the
// others; a tenant that loses them leaves to the others what they showed.
type totals struct {
	own      map[string]*series
	other    []int64            // by counterSeries
	seen     map[string][]int64 // what the last scrape read about the others
	all      bool               // the last scrape read every tenant, or this is the first
	accepted int64              // of the downstream, at the last scrape
}

// series are the counters of one tenant, by counterSeries.
type series struct {
	read []int64 // as Redis has them
	base []int64 // the part of them that is not shown here
	told []int64 // read - base, as soon as the totals have it too
}

func newTotals() *totals {
	return &totals{own: map[string]*series{}, other: make([]int64, len(counterSeries)), all: true}
}

// shows reports whether a tenant had series at the last scrape.
func (t *totals) shows(tenant string) bool { return t.own[tenant] != nil }

// take takes in what a scrape read. The totals were read before the tenants, so they may lack what
// the tenants already have.
func (t *totals) take(all shaper.Counters, shown, others []shaper.TenantInfo) {
	if all.Accepted < t.accepted/2 { // Redis has lost its data; after a failover that loses the last writes, the counts catch up
		*t = *newTotals()
	}
	t.accepted = all.Accepted
	own := make(map[string]*series, len(shown))
	var old, fresh []shaper.TenantInfo
	for _, tenant := range shown {
		if s := t.own[tenant.Name]; s != nil {
			own[tenant.Name] = s
			old = append(old, tenant)
			delete(t.own, tenant.Name)
			continue
		}
		n := make([]int64, 3*len(counterSeries))
		own[tenant.Name] = &series{n[:len(counterSeries)], n[len(counterSeries) : 2*len(counterSeries)], n[2*len(counterSeries):]}
		fresh = append(fresh, tenant)
	}
	for i, c := range counterSeries {
		for _, s := range t.own {
			t.other[i] += s.told[i]
		}
		more := c.get(all) - t.other[i] // what the totals have and no series shows yet
		for _, s := range own {
			more -= s.told[i]
		}
		more = max(0, more)
		for _, tenant := range old {
			s, n := own[tenant.Name], c.get(tenant.Counters)
			if n < s.read[i] { // the tenant was forgotten, and came back
				s.base[i] -= s.read[i]
			}
			more -= s.tell(i, n, more)
		}
		for _, tenant := range fresh {
			s, n := own[tenant.Name], c.get(tenant.Counters)
			if before := t.seen[tenant.Name]; before != nil && before[i] <= n {
				s.base[i] = before[i]
			} else if before == nil && !t.all { // it may have been there, and then what it did is counted among the others
				s.base[i] = n
			}
			more -= s.tell(i, n, more)
		}
		t.other[i] += more
	}
	t.all = len(shown)+len(others) < readMost
	t.own, t.seen = own, make(map[string][]int64, len(others))
	for _, tenant := range others {
		n := make([]int64, len(counterSeries))
		for i, c := range counterSeries {
			n[i] = c.get(tenant.Counters)
		}
		t.seen[tenant.Name] = n
	}
}

// tell raises a counter to what was read, by most at the most, and returns by how much.
func (s *series) tell(i int, read, most int64) int64 {
	n := min(max(0, read-s.base[i]-s.told[i]), most)
	s.read[i] = read
	s.told[i] += n
	return n
}

// tell sends all series; that of the others too, if there are any or were.
func (t *totals) tell(ch chan<- prometheus.Metric, downstream string, others bool) {
	for i, c := range counterSeries {
		for tenant, s := range t.own {
			ch <- count(c.desc, s.told[i], downstream, tenant)
		}
		others = others || t.other[i] > 0
	}
	for i, c := range counterSeries {
		if others {
			ch <- count(c.desc, t.other[i], downstream, otherTenant)
		}
	}
}

func count(d *prometheus.Desc, n int64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
