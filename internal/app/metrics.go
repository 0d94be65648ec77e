package app

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/jobshaper/jobshaper/shaper"
)

// registerOwn registers the metrics of the process and of each downstream. Pools and the API
// register their own.
func (d *daemon) registerOwn() error {
	admins := make([]statsReader, 0, len(d.cfg.Downstreams))
	for _, name := range d.cfg.names() {
		admin, err := shaper.NewAdmin(d.store.Client, name)
		if err != nil {
			return err
		}
		admins = append(admins, admin)
	}
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "shaper_build_info", Help: "1, with the version.",
		ConstLabels: prometheus.Labels{"version": d.cfg.Version, "go_version": runtime.Version()}}, func() float64 { return 1 })
	own := []prometheus.Collector{
		build, newCollector(d.cfg.names(), admins, d.log),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
	if d.cfg.LogDropped != nil {
		own = append(own, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "shaper_log_lines_dropped_total",
			Help: "Lines of the log that could not be written."}, func() float64 { return float64(d.cfg.LogDropped()) }))
	}
	for _, c := range own {
		if err := d.registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}
