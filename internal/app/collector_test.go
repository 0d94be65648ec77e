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

// fakeStats is the state of a downstream in a test.
type fakeStats struct{ stats shaper.Stats }

func (f *fakeStats) StatsOfLatest(context.Context, int) (shaper.Stats, error) { return f.stats, nil }

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

// The series say how often in a row each tenant shown was throttled, and the worst of the others.
func TestThrottledInARow(t *testing.T) {
	f := &fakeStats{stats: shaper.Stats{Tenants: 150, ByTenant: tenants(150, 10)}}
	f.stats.ByTenant[3].InARow, f.stats.ByTenant[4].InARow, f.stats.ByTenant[149].InARow = 7, 12, 31
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newCollector([]string{"d"}, []statsReader{f}, slog.New(slog.DiscardHandler)))
	got := gatherText(t, reg, "shaper_throttled_in_a_row")
	for _, line := range []string{`{downstream="d",tenant="t149"} 31`, `{downstream="d",tenant="t148"} 0`, `{downstream="d",tenant="_other"} 12`} {
		if !strings.Contains(got, "shaper_throttled_in_a_row"+line+"\n") {
			t.Errorf("no %s in\n%s", line, got)
		}
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
