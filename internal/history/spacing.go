package history

import (
	"cmp"
	"slices"
	"time"
)

// Spacing finds starts of one tenant that are closer than interval − keep − τ; where their rates differ,
// than the shorter of their intervals. At rates whose interval is below τ it can find nothing;
// Windows and Slots do.
func Spacing(h History, r Rule) []Violation {
	var out []Violation
	for _, starts := range h.byTenant() {
		for i := 1; i < len(starts); i++ {
			both := laxer(r.of(starts[i-1]), r.of(starts[i]))
			least := both.span(1) - both.Keep - both.Tolerance - both.Slack
			if d := gap(starts[i-1], starts[i]); d < least {
				out = append(out, found("spacing", starts[i], "%v after job %q, want at least %v", d, starts[i-1].ID, least))
			}
		}
	}
	return out
}

// Windows finds windows of an interval, of a second and of ten that hold more starts of one tenant
// than 1 + ⌊(W+τ+keep)/interval⌋; where their rates differ, the shortest of their intervals counts.
func Windows(h History, r Rule) []Violation {
	var out []Violation
	for _, starts := range h.byTenant() {
		runs := r.runs(starts)
		for i, e := range starts {
			for _, window := range []time.Duration{r.of(e).span(1), time.Second, 10 * time.Second} {
				most := r.inForce(starts, runs, i, window)
				if i < most {
					continue
				}
				if d := gap(starts[i-most], e); d <= window {
					out = append(out, found("windows", e, "%d starts within %v, want at most %d in %v", most+1, d, most, window))
				}
			}
		}
	}
	return out
}

// runs tells for each start where its run of starts under the same rule begins.
func (r Rule) runs(starts History) []int {
	out := make([]int, len(starts))
	for i := 1; i < len(starts); i++ {
		if out[i] = i; r.of(starts[i]) == r.of(starts[i-1]) {
			out[i] = out[i-1]
		}
	}
	return out
}

// inForce is how many starts a window that ends with the i-th may hold, by the laxest rule of any
// of them.
func (r Rule) inForce(starts History, runs []int, i int, window time.Duration) int {
	rule, begun := r.of(starts[i]), runs[i]
	most := rule.most(window)
	for begun > max(i-most, 0) {
		rule, begun = laxer(rule, r.of(starts[begun-1])), runs[begun-1]
		most = rule.most(window)
	}
	return most
}

// Slots finds starts without a slot, and slots of one tenant that are closer than interval − keep:
// one that was granted twice is the worst of them. A slot is exact, so neither τ nor slack applies,
// only the µs in which slots are counted.
func Slots(h History, r Rule) []Violation {
	var out []Violation
	for _, starts := range h.byTenant() {
		bySlot(starts)
		for i, e := range starts {
			if e.Slot == 0 {
				out = append(out, found("slots", e, "no slot"))
			} else if i > 0 {
				both := laxer(r.of(starts[i-1]), r.of(e))
				least := (both.span(1) - both.Keep).Truncate(time.Microsecond)
				if d := time.Duration(e.Slot-starts[i-1].Slot) * time.Microsecond; d < least {
					out = append(out, found("slots", e, "slot %v after that of job %q, want at least %v", d, starts[i-1].ID, least))
				}
			}
		}
	}
	return out
}

// OnTime finds starts before their slot, or later than τ after it. A recorder reads its clock after
// the start, so it excuses lateness by the rule's slack, and earliness by nothing.
func OnTime(h History, r Rule) []Violation {
	var out []Violation
	for _, e := range h.Of(Start) {
		late, r := time.Duration(e.Wall-e.Slot)*time.Microsecond, r.of(e)
		switch {
		case late < 0:
			out = append(out, found("on time", e, "%v before its slot", -late))
		case late > r.Tolerance+r.Slack:
			out = append(out, found("on time", e, "%v after its slot, want at most %v", late, r.Tolerance+r.Slack))
		}
	}
	return out
}

// Slip is how much longer the starts of a tenant took, by their slots, than the rate needs: zero
// while a backlog is drained without a missed slot, however long it is. Negative: faster than the
// rate.
func Slip(h History, tenant string, r Rule) time.Duration {
	starts := h.Of(Start).Tenant(tenant)
	if len(starts) < 2 {
		return 0
	}
	bySlot(starts)
	took := time.Duration(starts[len(starts)-1].Slot-starts[0].Slot) * time.Microsecond
	return took - r.span(len(starts)-1).Truncate(time.Microsecond)
}

func bySlot(starts History) {
	slices.SortStableFunc(starts, func(a, b Event) int { return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.At, b.At)) })
}
