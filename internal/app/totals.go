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
	{counter("lost_tickets", "Tickets that no worker used; their jobs went back."), func(c shaper.Counters) int64 { return c.LostTickets }},
	{counter("forgotten_dead", "Dead jobs that were too old or too many to keep."), func(c shaper.Counters) int64 { return c.Forgotten }},
}

func counter(name, help string) *prometheus.Desc {
	return describe("shaper_"+name+"_total", help, "tenant")
}

// totals keeps the counters of "_other" from going back. Which tenants that is changes from scrape to scrape, so it is no sum
// of theirs, but of what was added to each while it was among them.
type totals struct {
	last  map[string]shaper.Counters // of every tenant, when last seen
	other []int64                    // by counterSeries
}

// maxRemembered bounds totals.last. Who is forgotten starts anew, which loses one scrape's worth.
const maxRemembered = 100_000

func newTotals() *totals {
	return &totals{last: map[string]shaper.Counters{}, other: make([]int64, len(counterSeries))}
}

func (t *totals) tell(ch chan<- prometheus.Metric, downstream string, shown, others []shaper.TenantInfo) {
	if len(t.last)+len(others) > maxRemembered {
		clear(t.last)
	}
	for _, tenant := range others {
		last, seen := t.last[tenant.Name]
		for i, s := range counterSeries {
			if delta := s.get(tenant.Counters) - s.get(last); seen && delta > 0 {
				t.other[i] += delta
			}
		}
		t.last[tenant.Name] = tenant.Counters
	}
	for _, tenant := range shown {
		t.last[tenant.Name] = tenant.Counters
		for _, s := range counterSeries {
			ch <- count(s.desc, s.get(tenant.Counters), downstream, tenant.Name)
		}
	}
	if len(others) > 0 {
		for i, s := range counterSeries {
			ch <- count(s.desc, t.other[i], downstream, otherTenant)
		}
	}
}

func count(d *prometheus.Desc, n int64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
