package history

import (
	"cmp"
	"slices"
	"time"
)

// Spacing finds starts of one tenant that are closer than interval − τ. At rates whose interval is below τ it can find
// nothing; Windows and Slots do.
func Spacing(h History, r Rule) []Violation {
	var out []Violation
	least := r.span(1) - r.Tolerance - r.Slack
	for _, starts := range h.byTenant() {
		for i := 1; i < len(starts); i++ {
			if d := gap(starts[i-1], starts[i]); d < least {
				out = append(out, found("spacing", starts[i], "%v after job %q, want at least %v", d, starts[i-1].ID, least))
			}
		}
	}
	return out
}

// Windows finds windows of an interval, of a second and of ten that hold more starts of one tenant than 1 + ⌊(W+τ)/interval⌋.
func Windows(h History, r Rule) []Violation {
	var out []Violation
	for _, starts := range h.byTenant() {
		for _, window := range []time.Duration{r.span(1), time.Second, 10 * time.Second} {
			most := r.most(window)
			for i := most; i < len(starts); i++ {
				if d := gap(starts[i-most], starts[i]); d <= window {
					out = append(out, found("windows", starts[i], "%d starts within %v, want at most %d in %v", most+1, d, most, window))
				}
			}
		}
	}
	return out
}

// Slots finds starts without a slot, and slots of one tenant that are closer than an interval: one that was granted twice is
// the worst of them. A slot is exact, so neither τ nor slack applies; only the µs in which slots are counted.
func Slots(h History, r Rule) []Violation {
	var out []Violation
	least := r.span(1).Truncate(time.Microsecond)
	for _, starts := range h.byTenant() {
		bySlot(starts)
		for i, e := range starts {
			if e.Slot == 0 {
				out = append(out, found("slots", e, "no slot"))
			} else if i > 0 {
				if d := time.Duration(e.Slot-starts[i-1].Slot) * time.Microsecond; d < least {
					out = append(out, found("slots", e, "slot %v after that of job %q, want at least %v", d, starts[i-1].ID, least))
				}
			}
		}
	}
	return out
}

// OnTime finds starts before their slot, or later than τ after it. A recorder reads its clock after the start, so it
// excuses lateness by the rule's slack, and earliness by nothing.
func OnTime(h History, r Rule) []Violation {
	var out []Violation
	for _, e := range h.Of(Start) {
		late := time.Duration(e.Wall-e.Slot) * time.Microsecond
		switch {
		case late < 0:
			out = append(out, found("on time", e, "%v before its slot", -late))
		case late > r.Tolerance+r.Slack:
			out = append(out, found("on time", e, "%v after its slot, want at most %v", late, r.Tolerance+r.Slack))
		}
	}
	return out
}

// Slip is how much longer the starts of a tenant took, by their slots, than the rate needs: zero while a backlog is
// drained without a missed slot, however long it is. Negative: faster than the rate.
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
