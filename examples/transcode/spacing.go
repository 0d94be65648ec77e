package main

import (
	"slices"
	"time"
)

// spacing sums up how instants are spread over time.
type spacing struct {
	n                  int           // instants
	min, p50, p99, max time.Duration // of the gaps between neighbours; zero if there are none
	in100ms, in1s      int           // most instants in any window of 100 ms, and of 1 s; the end of a window is outside it
}

// spacingOf takes instants in any order.
func spacingOf(times []time.Time) spacing {
	times = slices.SortedFunc(slices.Values(times), time.Time.Compare)
	s := spacing{n: len(times), in100ms: mostIn(times, 100*time.Millisecond), in1s: mostIn(times, time.Second)}
	var gaps []time.Duration
	for i := 1; i < len(times); i++ {
		gaps = append(gaps, times[i].Sub(times[i-1]))
	}
	if len(gaps) > 0 {
		slices.Sort(gaps)
		s.min, s.p50, s.p99, s.max = gaps[0], quantile(gaps, 50), quantile(gaps, 99), gaps[len(gaps)-1]
	}
	return s
}

// quantile returns the smallest value that is not below percent of them (nearest rank). sorted is
// not empty.
func quantile(sorted []time.Duration, percent int) time.Duration {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}

// mostIn returns how many of the instants, which are in order, the fullest window of length w
// holds.
func mostIn(times []time.Time, w time.Duration) int {
	most, first := 0, 0
	for last, t := range times {
		for t.Sub(times[first]) >= w {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// bound is the promise about windows: no window of length w holds more starts, wherever it is.
func bound(w, interval, tolerance time.Duration) int {
	return 1 + int((w+tolerance)/interval)
}
