package workers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobshaper/jobshaper/shaper"
)

// TestMetricsCount runs a job that fails once, and looks at what was counted.
func TestMetricsCount(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg, "d")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewMetrics(reg, "d"); err == nil {
		t.Error("registered twice without an error")
	}
	var starts atomic.Int64
	b := newBench(t, func(context.Context, *asynq.Task) error {
		if starts.Add(1) == 1 {
			return errors.New("once")
		}
		return nil
	}, Config{Metrics: m})
	b.policy(shaper.Policy{Backoff: shaper.Backoff{Min: time.Millisecond, Max: time.Millisecond}})
	b.start()
	b.wait("a", b.offer("a", 1))
	b.pool.Stop()

	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, v := range f.GetMetric() {
			name := f.GetName()
			for _, l := range v.GetLabel() {
				if l.GetName() != "downstream" {
					name += "/" + l.GetValue()
				} else if l.GetValue() != "d" {
					t.Errorf("%s is of downstream %q", name, l.GetValue())
				}
			}
			got[name] = v.GetCounter().GetValue() + float64(v.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"shaper_slot_lateness_seconds": 2, "shaper_handler_duration_seconds": 2,
		"shaper_pool_ends_total/done": 1, "shaper_pool_ends_total/retry": 1, "shaper_store_round_trip_seconds/finish": 2,
		"shaper_lost_leases_total": 0,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestNilMetricsMeasureNothing(t *testing.T) {
	var m *Metrics
	m.started(&Slot{unready: true})
	m.roundTrip("gate", time.Now())
	m.handled(0)
	m.finished("done")
	m.missedSlot()
	m.refusedTicket("gone")
	m.leaseLost()
	m.tooLate()
	m.forgot()
}
