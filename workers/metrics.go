package workers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/usable"
	"github.com/jobshaper/jobshaper/shaper"
)

// Metrics are what pools of one process measure. A nil *Metrics measures nothing.
type Metrics struct {
	lag       prometheus.Histogram
	slipped   prometheus.Counter
	lateness  prometheus.Histogram
	rtt       *prometheus.HistogramVec
	duration  prometheus.Histogram
	ends      *prometheus.CounterVec
	unready   prometheus.Counter
	missed    prometheus.Counter
	refused   *prometheus.CounterVec
	leasesOut prometheus.Counter
	late      prometheus.Counter
	forgotten prometheus.Counter
}

// NewMetrics makes the metrics of a downstream's pool and registers them.
func NewMetrics(reg prometheus.Registerer, downstream string) (*Metrics, error) {
	if usable.Nil(reg) {
		return nil, &shaper.FieldError{Field: "registerer", Value: "nil", Want: "a prometheus.Registerer"}
	}
	labels := prometheus.Labels{"downstream": downstream}
	m := &Metrics{
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "shaper_slot_to_grant_seconds", ConstLabels: labels,
			Help:    "How long after the instant that was a job's turn a worker was granted its slot; 0 = in time. Above half the tolerance the slot slipped.",
			Buckets: []float64{0, .001, .0025, .005, .01, .02, .05, .1, .25, 1, 5, 30}}),
		slipped: prometheus.NewCounter(prometheus.CounterOpts{Name: "shaper_slipped_slots_total", ConstLabels: labels,
			Help: "Slots that passed while a job waited for its first start, since no worker asked for them in time: none was free, or its ticket was late. The rate falls short by them."}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "shaper_slot_lateness_seconds", ConstLabels: labels,
			Help:    "How long after its slot a start happened, at most: as far as the clocks can tell, so a round trip to Redis is included. A start is the request's first byte with an HTTP target, the release of the program with an exec target, and the first instruction of any other handler.",
			Buckets: []float64{.0001, .00025, .0005, .001, .002, .003, .005, .0075, .01, .015, .02, .05}}),
		rtt: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "shaper_store_round_trip_seconds", ConstLabels: labels,
			Help:    "Round trip of a call to Redis.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .02, .05, .1, .5, 1, 5}}, []string{"call"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "shaper_handler_duration_seconds", ConstLabels: labels,
			Help: "How long handlers ran.", Buckets: prometheus.ExponentialBuckets(.001, 4, 11)}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shaper_pool_ends_total", ConstLabels: labels,
			Help: "Starts that ended in this process, by what became of the job: done, retry, dead, cancelled, back, or stale where another pool owned it."}, []string{"became"}),
		unready: prometheus.NewCounter(prometheus.CounterOpts{Name: "shaper_unready_starts_total", ConstLabels: labels,
			Help: "Starts of a target that were not ready at their slot, since it could not be reached in time, or this system cannot prepare them: the downstream saw them later."}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{Name: "shaper_missed_slots_total", ConstLabels: labels,
			Help: "Slots that were missed by more than the tolerance, so that another was asked for. If this grows, the tolerance is too small for this Redis or this machine."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shaper_refused_tickets_total", ConstLabels: labels,
			Help: "Tickets that the gate turned away, by reason."}, []string{"reason"}),
		leasesOut: prometheus.NewCounter(prometheus.CounterOpts{Name: "shaper_lost_leases_total", ConstLabels: labels,
			Help: "Leases that this process lost while a handler ran."}),
		late: prometheus.NewCounter(prometheus.CounterOpts{Name: "shaper_too_late_total", ConstLabels: labels,
			Help: "Jobs that went back unstarted because they missed slot after slot: calls to Redis take longer than the tolerance."}),
		forgotten: prometheus.NewCounter(prometheus.CounterOpts{Name: "shaper_store_forgot_total", ConstLabels: labels,
			Help: "How often Redis had lost this pool's entry, and with it the jobs that waited: FLUSHALL, or a restart without its file."}),
	}
	for _, c := range []prometheus.Collector{m.lag, m.slipped, m.lateness, m.rtt, m.duration, m.ends, m.unready, m.missed, m.refused, m.leasesOut, m.late, m.forgotten} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) granted(g *queue.Grant) {
	if m == nil {
		return
	}
	m.lag.Observe(max(0, -g.Ahead, g.Slipped).Seconds())
	if g.Slipped > 0 {
		m.slipped.Inc()
	}
}

func (m *Metrics) started(s *Slot) {
	if m == nil {
		return
	}
	m.lateness.Observe(s.late.Seconds())
	if s.unready {
		m.unready.Inc()
	}
}

func (m *Metrics) roundTrip(call string, since time.Time) {
	if m != nil {
		m.rtt.WithLabelValues(call).Observe(time.Since(since).Seconds())
	}
}

func (m *Metrics) handled(d time.Duration) {
	if m != nil {
		m.duration.Observe(d.Seconds())
	}
}

func (m *Metrics) finished(became string) {
	if m != nil {
		m.ends.WithLabelValues(became).Inc()
	}
}

func (m *Metrics) missedSlot() {
	if m != nil {
		m.missed.Inc()
	}
}

func (m *Metrics) refusedTicket(reason string) {
	if m != nil {
		m.refused.WithLabelValues(reason).Inc()
	}
}

func (m *Metrics) leaseLost() {
	if m != nil {
		m.leasesOut.Inc()
	}
}

func (m *Metrics) tooLate() {
	if m != nil {
		m.late.Inc()
	}
}

func (m *Metrics) forgot() {
	if m != nil {
		m.forgotten.Inc()
	}
}
