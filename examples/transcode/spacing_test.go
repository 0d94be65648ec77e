package main

import (
	"slices"
	"testing"
	"time"
)

// at returns instants at milliseconds of a day.
func at(ms ...int) []time.Time {
	var out []time.Time
	for _, n := range ms {
		out = append(out, time.UnixMilli(int64(n)))
	}
	return out
}

func TestSpacingOf(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		times []time.Time
		want  spacing
	}{
		{"none", nil, spacing{}},
		{"one", at(5), spacing{n: 1, in100ms: 1, in1s: 1}},
		{"even: the end of a window is outside", at(0, 100, 200, 300),
			spacing{n: 4, min: 100 * ms, p50: 100 * ms, p99: 100 * ms, max: 100 * ms, in100ms: 1, in1s: 4}},
		{"one a little early", at(0, 100, 199),
			spacing{n: 3, min: 99 * ms, p50: 99 * ms, p99: 100 * ms, max: 100 * ms, in100ms: 2, in1s: 3}},
		{"in any order, at once", at(700, 0, 700, 700),
			spacing{n: 4, min: 0, p50: 0, p99: 700 * ms, max: 700 * ms, in100ms: 3, in1s: 4}},
	} {
		if got := spacingOf(c.times); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for percent, want := range map[int]time.Duration{0: 1, 1: 1, 50: 50, 99: 99, 100: 100} {
		if got := quantile(hundred, percent); got != want {
			t.Errorf("p%d of 1…100: %d, want %d", percent, got, want)
		}
	}
}

func TestBound(t *testing.T) {
	const interval, tau = 100 * time.Millisecond, 20 * time.Millisecond
	for w, want := range map[time.Duration]int{10 * time.Millisecond: 1, 80 * time.Millisecond: 2, interval: 2, time.Second: 11} {
		if got := bound(w, interval, tau); got != want {
			t.Errorf("window %v: %d, want %d", w, got, want)
		}
	}
}

// Every way in which a report may be wrong is found.
func TestVerify(t *testing.T) {
	good := func() report {
		a := account{record: record{tenant: few[0], offers: at(0, 0, 0), refusals: at(0), starts: at(0, 100)}, stored: 2, done: 2}
		return report{accounts: []account{a}, outputs: 2, decoded: 2, whole: true}
	}
	if err := good().verify(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*report){
		"lost job":         func(r *report) { r.accounts[0].done-- },
		"unheard job":      func(r *report) { r.accounts[0].refusals = nil },
		"starts too close": func(r *report) { r.accounts[0].starts = at(0, 69) },
		"failed job":       func(r *report) { r.accounts[0].done--; r.accounts[0].failed++ },
		"bad output":       func(r *report) { r.decoded-- },
	} {
		r := good()
		r.accounts = slices.Clone(r.accounts)
		spoil(&r)
		if r.verify() == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
