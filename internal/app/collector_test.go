package app

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/jobshaper/jobshaper/shaper"
)

// fakeStats is what stands of a downstream in a test.
type fakeStats struct {
	stats shaper.Stats
	asked []bool // what Stats was called with
}

func (f *fakeStats) Stats(_ context.Context, all bool) (shaper.Stats, error) {
	f.asked = append(f.asked, all)
	return f.stats, nil
}

// tenants makes n tenants; the i-th has i jobs waiting and accepted many.
func tenants(n int, accepted int64) []shaper.TenantInfo {
	var list []shaper.TenantInfo
	for i := range n {
		list = append(list, shaper.TenantInfo{Name: fmt.Sprintf("t%03d", i), Waiting: i, Counters: shaper.Counters{Accepted: accepted}})
	}
	return list
}

func TestTenantsAreBounded(t *testing.T) {
	f := &fakeStats{stats: shaper.Stats{Tenants: 150, ByTenant: tenants(150, 10)}}
	reg := prometheus.NewPedanticRegistry()
	c := newCollector([]string{"d"}, []statsReader{f}, slog.New(slog.DiscardHandler))
	reg.MustRegister(c)
	if n, err := testutil.GatherAndCount(reg, "shaper_level"); err != nil || n != maxTenants+1 {
		t.Errorf("%d series of levels (%v), want %d", n, err, maxTenants+1)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	want := `# HELP shaper_level Jobs that wait: in the bucket or delayed.
# TYPE shaper_level gauge
`
	got := gatherText(t, reg, "shaper_level")
	for _, line := range []string{want, `shaper_level{downstream="d",tenant="t149"} 149`, `shaper_level{downstream="d",tenant="t050"} 50`,
		fmt.Sprintf(`shaper_level{downstream="d",tenant="_other"} %d`, 49*50/2)} {
		if !strings.Contains(got, strings.TrimSuffix(line, "\n")) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}

// The total of the others counts what they add, whoever they are, and never goes back.
func TestOthersNeverGoBack(t *testing.T) {
	f := &fakeStats{stats: shaper.Stats{Tenants: 150, ByTenant: tenants(150, 10)}}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newCollector([]string{"d"}, []statsReader{f}, slog.New(slog.DiscardHandler)))
	other := func() string {
		for line := range strings.Lines(gatherText(t, reg, "shaper_accepted_total")) {
			if strings.Contains(line, "_other") {
				return strings.TrimSpace(line[strings.LastIndex(line, " "):])
			}
		}
		return "none"
	}
	if got := other(); got != "0" {
		t.Errorf("at first %s, want 0: what was before is not known to be new", got)
	}
	f.stats.ByTenant = tenants(150, 12)
	if got := other(); got != "100" {
		t.Errorf("after two more for each of 50: %s", got)
	}
	f.stats.ByTenant = tenants(150, 12)
	f.stats.ByTenant[0].Waiting = 1000 // becomes one of the busiest, and another takes its place
	if got := other(); got != "100" {
		t.Errorf("after a change of places: %s", got)
	}
	f.stats.ByTenant = tenants(150, 1) // counters that began anew
	if got := other(); got != "100" {
		t.Errorf("after a new beginning: %s", got)
	}
}

// A scrape reads idle tenants only while they are few.
func TestIdleTenantsAreReadWhileFew(t *testing.T) {
	f := &fakeStats{stats: shaper.Stats{Tenants: 3}}
	c := newCollector([]string{"d"}, []statsReader{f}, slog.New(slog.DiscardHandler))
	testutil.CollectAndCount(c)
	testutil.CollectAndCount(c)
	f.stats.Tenants = 100_000
	testutil.CollectAndCount(c) // finds out
	testutil.CollectAndCount(c)
	if got, want := fmt.Sprint(f.asked), fmt.Sprint([]bool{false, true, true, true, false}); got != want {
		t.Errorf("asked for all: %s, want %s", got, want)
	}
}

func gatherText(t *testing.T, g prometheus.Gatherer, name string) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, f.GetHelp(), name, strings.ToLower(f.GetType().String()))
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			fmt.Fprintf(&b, "%s{%s} %v\n", name, strings.Join(labels, ","), m.GetGauge().GetValue()+m.GetCounter().GetValue())
		}
	}
	return b.String()
}
