package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/shaper"
)

// report is the result of a run.
type report struct {
	accounts         []account
	failures         []string // errors of some of the dead jobs
	outputs, decoded int      // files written, and how many of them were read from start to end
	bad              []error  // about files that cannot be read
	dir              string   // where the files are
	busiest          int      // the most jobs that ran at a time
	took             time.Duration
	whole            bool   // nothing ended the run early
	checked          string // what the departure log says of all starts, in a line
	broken           bool   // whether the log says that they broke a promise
}

// account is what became of one tenant's files: the offers and starts that the journal saw, and the
// store's counts.
type account struct {
	record
	stored, done, failed, cancelled int
}

func (a account) files() int { return a.tenant.bursts * a.tenant.burst }

// interval is the least time between two starts of the tenant.
func (a account) interval() time.Duration { return a.tenant.policy.Rate.Interval() }

// total is the sum of all tenants. Its tenant has the downstream's rate.
func (r report) total() account {
	t := account{record: record{tenant: tenant{name: "all", bursts: 1, policy: shaper.Policy{Rate: policy.Rate}}}}
	for _, a := range r.accounts {
		t.tenant.burst += a.files()
		t.offers = slices.Concat(t.offers, a.offers)
		t.refusals = slices.Concat(t.refusals, a.refusals)
		t.starts = slices.Concat(t.starts, a.starts)
		t.stored, t.done = t.stored+a.stored, t.done+a.done
		t.failed, t.cancelled = t.failed+a.failed, t.cancelled+a.cancelled
	}
	return t
}

// jitter is the delay that a busy machine may add between the gate and the first line of a handler,
// where starts are recorded.
const jitter = 10 * time.Millisecond

// verify returns what does not add up, or breaks a promise. After a run that ended early, the
// store's counts may be ahead of what producers heard, and outputs were not read.
func (r report) verify() error {
	var wrong []error
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	all := r.total()
	for _, a := range append(slices.Clone(r.accounts), all) {
		if a.stored != a.done+a.failed+a.cancelled {
			add("%s: %d jobs accepted, but %d done, %d failed and %d cancelled", a.tenant.name, a.stored, a.done, a.failed, a.cancelled)
		}
		if a.accepted() != a.stored && r.whole {
			add("%s: the producer heard of %d accepted jobs, the store has %d", a.tenant.name, a.accepted(), a.stored)
		}
		if s := spacingOf(a.starts); s.n > 1 && s.min < a.interval()-shaper.DefaultTolerance-jitter {
			add("%s: two starts %v apart, want at least %v - %v", a.tenant.name, s.min, a.interval(), shaper.DefaultTolerance)
		}
	}
	if r.broken {
		add("%s", r.checked)
	}
	if all.failed > 0 {
		add("%d jobs failed", all.failed)
	}
	if r.decoded != all.done && r.whole {
		add("%d jobs done, but %d good outputs", all.done, r.decoded)
	}
	return errors.Join(append(wrong, r.bad...)...)
}

// print writes the report for people.
func (r report) print(w io.Writer) {
	r.printCounts(w)
	r.printSpacing(w)
	if r.whole {
		fmt.Fprintf(w, "\n  %d files in %s, %d of them read without an error\n", r.outputs, r.dir, r.decoded)
	} else {
		fmt.Fprintf(w, "\n  ended early: jobs that waited were cancelled; what was done is in %s\n", r.dir)
	}
	if r.checked != "" {
		fmt.Fprintf(w, "  %s\n", r.checked)
	}
	fmt.Fprintf(w, "  took %.1f s in all\n", r.took.Seconds())
}

// printCounts prints what became of the files. For each line, offers = accepted + refused, and
// accepted = the rest.
func (r report) printCounts(w io.Writer) {
	fmt.Fprintf(w, "\n%11s%9s%9s%10s%10s%9s%9s%11s\n", "", "files", "offers", "accepted", "refused", "done", "failed", "cancelled")
	for _, a := range append(slices.Clone(r.accounts), r.total()) {
		fmt.Fprintf(w, "  %-9s%9d%9d%10d%10d%9d%9d%11d\n", a.tenant.name, a.files(), len(a.offers), a.accepted(),
			len(a.refusals), a.done, a.failed, a.cancelled)
	}
	for _, a := range r.accounts {
		if len(a.refusals) > 0 {
			fmt.Fprintf(w, "  %s, if refused, was told to try again in %s to %s ms, and %s\n", a.tenant.name,
				ms(a.shortestWait, 0), ms(a.longestWait, 0), a.tenant.manner())
		}
	}
	for _, text := range r.failures {
		fmt.Fprintf(w, "  failed: %s\n", strings.ReplaceAll(text, "\n", " "))
	}
}

// printSpacing prints how the starts were spread over time and, for comparison, the offers.
func (r report) printSpacing(w io.Writer) {
	fmt.Fprintf(w, "\n%21s%39s%20s\n", "", "ms from one start to the next", "most in any")
	fmt.Fprintf(w, "  %-9s%10s%10s%10s%10s%10s%11s%7s\n", "starts", "interval", "min", "p50", "p99", "max", "100 ms", "1 s")
	all := r.total()
	for _, a := range append(slices.Clone(r.accounts), all) {
		s := spacingOf(a.starts)
		fmt.Fprintf(w, "  %-9s%10s%10s%10s%10s%10s%11d%7d\n", a.tenant.name, ms(a.interval(), 0),
			ms(s.min, 1), ms(s.p50, 1), ms(s.p99, 1), ms(s.max, 1), s.in100ms, s.in1s)
	}
	offers := spacingOf(all.offers)
	fmt.Fprintf(w, "  %-9s%61d%7d\n", "offers", offers.in100ms, offers.in1s)
	tau := shaper.DefaultTolerance
	fmt.Fprintf(w, "  promised: no two starts closer than interval - %s ms, so of all starts at most\n", ms(tau, 0))
	fmt.Fprintf(w, "  %d in any 100 ms and %d in any 1 s (its two ends may each catch one)\n",
		bound(100*time.Millisecond, all.interval(), tau), bound(time.Second, all.interval(), tau))
	if r.busiest < places {
		fmt.Fprintf(w, "  at most %d of %d places were busy at a time\n", r.busiest, places)
	} else {
		fmt.Fprintf(w, "  all %d places were busy at times: jobs took too long here for the rate\n", places)
	}
}

// ms formats d in milliseconds.
func ms(d time.Duration, decimals int) string {
	return fmt.Sprintf("%.*f", decimals, float64(d)/float64(time.Millisecond))
}
