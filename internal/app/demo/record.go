package demo

import (
	"slices"
	"sync"
	"time"
)

// record is what happened in one act, as the producer and the downstream saw it.
type record struct {
	begun time.Time

	mu       sync.Mutex
	arrivals []time.Duration // jobs offered, since begun
	served   []time.Duration // requests that the downstream took
	failed   []time.Duration // requests that it did not take
	outages  int
}

func newRecord() *record { return &record{begun: time.Now()} }

func (r *record) arrival() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrivals = append(r.arrivals, time.Since(r.begun))
}

func (r *record) request(at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		r.served = append(r.served, at.Sub(r.begun))
	} else {
		r.failed = append(r.failed, at.Sub(r.begun))
	}
}

func (r *record) outage() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outages++
}

// view is a record at an instant, in columns of one step each.
type view struct {
	arrived, served, failed []int // in each column
	waiting                 []int // at the end of each column: offered, but not at the downstream yet
	total, ok, lost         int
	outages                 int
	gaps                    []time.Duration // between requests, sorted
	took                    time.Duration   // from the first job to the last request
}

func (r *record) view() view {
	r.mu.Lock()
	defer r.mu.Unlock()
	columns := int(time.Since(r.begun)/step) + 1
	v := view{total: len(r.arrivals), ok: len(r.served), lost: len(r.failed), outages: r.outages,
		arrived: perColumn(r.arrivals, columns), served: perColumn(r.served, columns), failed: perColumn(r.failed, columns),
		waiting: make([]int, columns)}
	level := 0
	for i := range columns {
		level += v.arrived[i] - v.served[i] - v.failed[i]
		v.waiting[i] = max(level, 0)
	}
	requests := slices.Concat(r.served, r.failed)
	slices.Sort(requests)
	for i := 1; i < len(requests); i++ {
		v.gaps = append(v.gaps, requests[i]-requests[i-1])
	}
	slices.Sort(v.gaps)
	if len(requests) > 0 {
		v.took = requests[len(requests)-1]
	}
	return v
}

func perColumn(times []time.Duration, columns int) []int {
	out := make([]int, columns)
	for _, t := range times {
		if i := int(t / step); i >= 0 && i < columns {
			out[i]++
		}
	}
	return out
}

// over reports whether every job has reached the downstream.
func (v view) over() bool { return v.total == offered() && v.ok+v.lost >= v.total }
