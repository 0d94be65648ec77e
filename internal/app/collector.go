package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobshaper/jobshaper/shaper"
)

const (
	// maxTenants is how many tenants of a downstream have series of their own: the busiest.
	maxTenants = 100
	// otherTenant is the tenant label of all others together. No tenant can have that name.
	otherTenant = "_other"
	// readMost is how many idle tenants a scrape reads, those that were busy last, besides all the
	// busy ones. So its cost does not grow with idle tenants. What the others did is in the
	// downstream's totals; only their dead jobs are missing from the gauges.
	readMost = 1000
	// scrapeTimeout bounds one downstream's part of a scrape.
	scrapeTimeout = 2 * time.Second
)

// statsReader reads the current state of a downstream; *shaper.Admin is one.
type statsReader interface {
	StatsOfLatest(ctx context.Context, most int) (shaper.Stats, error)
}

// collector tells Prometheus the current state in Redis, which it reads at each scrape.
type collector struct {
	names  []string
	admins []statsReader
	log    *slog.Logger

	mu     sync.Mutex // one scrape at a time
	totals []*totals  // of each downstream; guarded by mu
}

func newCollector(names []string, admins []statsReader, log *slog.Logger) *collector {
	c := &collector{names: names, admins: admins, log: log}
	for range names {
		c.totals = append(c.totals, newTotals())
	}
	return c
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"downstream"}, labels...), nil)
}

var (
	upDesc       = describe("shaper_store_up", "Whether Redis answered this scrape.")
	tenantsDesc  = describe("shaper_tenants", "Tenants that are known.")
	pausedDesc   = describe("shaper_paused", "Whether the whole downstream is paused.")
	poolsDesc    = describe("shaper_pools", "Live pools of workers.")
	placesDesc   = describe("shaper_places", "How many jobs the live pools can run at a time.")
	levelDesc    = describe("shaper_level", "Jobs that wait: in the bucket or delayed.", "tenant")
	depthDesc    = describe("shaper_depth", "How many jobs may wait.", "tenant")
	oldestDesc   = describe("shaper_oldest_seconds", "How long the head of the bucket has waited.", "tenant")
	inFlightDesc = describe("shaper_in_flight", "Tickets out and jobs running.", "tenant")
	rowDesc      = describe("shaper_throttled_in_a_row", "Starts in a row after which the downstream asked to slow down; from 10 on it lets nothing through. For several tenants, the largest of their numbers.", "tenant")
	deadDesc     = describe("shaper_dead", "Dead jobs that are kept.", "tenant")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, tenantsDesc, pausedDesc, poolsDesc, placesDesc, levelDesc, depthDesc, oldestDesc, inFlightDesc, deadDesc, rowDesc} {
		ch <- d
	}
	for _, s := range counterSeries {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range c.names {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
		s, err := c.admins[i].StatsOfLatest(ctx, readMost)
		if errors.Is(err, shaper.ErrNotFound) { // nothing there yet, or Redis lost everything: no tenants
			s, err = shaper.Stats{Downstream: name}, nil
		}
		cancel()
		ch <- gauge(upDesc, boolean(err == nil), name)
		if err != nil {
			c.log.Warn("metrics could not be read", "downstream", name, "err", err)
			continue
		}
		c.tell(ch, i, s)
	}
}

func (c *collector) tell(ch chan<- prometheus.Metric, i int, s shaper.Stats) {
	name := c.names[i]
	ch <- gauge(tenantsDesc, float64(s.Tenants), name)
	ch <- gauge(pausedDesc, boolean(s.Paused), name)
	ch <- gauge(poolsDesc, float64(s.Pools), name)
	ch <- gauge(placesDesc, float64(s.Places), name)
	shown, others := split(s.ByTenant, c.totals[i].shows)
	for _, t := range shown {
		tellGauges(ch, name, t.Name, t)
	}
	if len(others) > 0 {
		tellGauges(ch, name, otherTenant, sum(others))
	}
	c.totals[i].take(s.Counters, shown, others)
	c.totals[i].tell(ch, name, len(others) > 0)
}

// split returns the busiest tenants and the others. A tenant that was shown before stays until one
// that is more than twice as busy needs its place: a series that comes and goes is of little use.
// Among equals, each scrape chooses the same ones.
func split(tenants []shaper.TenantInfo, before func(name string) bool) (shown, others []shaper.TenantInfo) {
	sorted := slices.Clone(tenants)
	rank := func(t shaper.TenantInfo) (kept, n int) {
		if before(t.Name) {
			return 1, 2 * busy(t)
		}
		return 0, busy(t)
	}
	slices.SortFunc(sorted, func(a, b shaper.TenantInfo) int {
		keptA, busyA := rank(a)
		keptB, busyB := rank(b)
		return cmp.Or(cmp.Compare(busyB, busyA), cmp.Compare(keptB, keptA), cmp.Compare(b.Counters.Accepted, a.Counters.Accepted),
			cmp.Compare(a.Name, b.Name))
	})
	n := min(len(sorted), maxTenants)
	return sorted[:n], sorted[n:]
}

func busy(t shaper.TenantInfo) int { return t.Level() + t.Out + t.Running }

// sum is the state of several tenants together; it has no depth.
func sum(tenants []shaper.TenantInfo) shaper.TenantInfo {
	var s shaper.TenantInfo
	for _, t := range tenants {
		s.Waiting += t.Waiting
		s.Delayed += t.Delayed
		s.Out += t.Out
		s.Running += t.Running
		s.Dead += t.Dead
		s.Oldest = max(s.Oldest, t.Oldest)
		s.InARow = max(s.InARow, t.InARow)
	}
	return s
}

func tellGauges(ch chan<- prometheus.Metric, downstream, tenant string, t shaper.TenantInfo) {
	ch <- gauge(levelDesc, float64(t.Level()), downstream, tenant)
	ch <- gauge(oldestDesc, t.Oldest.Seconds(), downstream, tenant)
	ch <- gauge(inFlightDesc, float64(t.Out+t.Running), downstream, tenant)
	ch <- gauge(rowDesc, float64(t.InARow), downstream, tenant)
	ch <- gauge(deadDesc, float64(t.Dead), downstream, tenant)
	if t.Effective.Depth > 0 {
		ch <- gauge(depthDesc, float64(t.Effective.Depth), downstream, tenant)
	}
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
