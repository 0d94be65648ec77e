package history

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Terms are what a whole history is judged by.
type Terms struct {
	Tolerance time.Duration
	Slack     time.Duration // see Rule
	InFlight  int           // most jobs of a tenant that run at a time; 0 = not looked at
}

// Report is what was found in a history in which many things went wrong on purpose, see Judge.
type Report struct {
	Took                               time.Duration // from the first event to the last
	Offered, Accepted, Refused, Starts int
	Jobs                               int // that were started
	Ends                               map[string]int
	Faults                             map[string]int
	Frozen                             int // starts that are left out, see Frozen

	// LeastGap is the distance of those two starts of a tenant that were the closest, as a
	// fraction of Interval, its interval then.
	LeastGap, Interval time.Duration

	Inversions int // see Order; not a violation where faults make a job miss its slot
	Found      map[string][]Violation
}

// Checks are the checks that Judge runs, in the order of its summary.
var Checks = []string{"lost", "unexpected", "spacing", "windows", "slots", "on time", "attempts", "duplicated", "in flight"}

// Judge runs every check that applies whatever was broken, over a whole history. Rates are those of
// its Set events. It holds one tenant's events at a time, so that a history of hours fits into
// memory.
func Judge(path string, terms Terms) (*Report, error) {
	out := &Report{Ends: map[string]int{}, Faults: map[string]int{}, Found: map[string][]Violation{}}
	tenants, err := out.survey(path)
	if err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		h, err := readTenant(path, tenant)
		if err != nil {
			return nil, err
		}
		err = out.judge(h, tenant, terms, func(h, rest History, rule Rule) [][]Violation {
			found := [][]Violation{Starts(rest, rule), Accounts(rest)}
			if terms.InFlight > 0 {
				found = append(found, InFlight(h, tenant, terms.InFlight))
			}
			return found
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Arrivals judges what a downstream saw of the starts of a history, and wrote down as starts in a
// history of its own, at seen: whether they came in slots of their own, none before its slot, and
// spaced as promised, by the rates and the stops of processes that the history at path tells. Slack
// is for the way from the start to the downstream's clock.
func Arrivals(path, seen string, terms Terms) (*Report, error) {
	out := &Report{Ends: map[string]int{}, Faults: map[string]int{}, Found: map[string][]Violation{}}
	tenants, err := out.survey(seen)
	if err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		told, err := readTenant(path, tenant)
		if err != nil {
			return nil, err
		}
		saw, err := readTenant(seen, tenant)
		if err != nil {
			return nil, err
		}
		h := append(told.where(func(e Event) bool { return e.Kind == Set || e.Kind == Cut || e.Kind == Go }), saw...)
		h.sort()
		err = out.judge(h, tenant, terms, func(_, rest History, rule Rule) [][]Violation {
			early := rest.where(func(e Event) bool { return e.Wall < e.Slot })
			return [][]Violation{Spacing(rest, rule), Windows(rest, rule), Slots(rest, rule), OnTime(early, rule)}
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// survey counts, and returns the names of the tenants.
func (r *Report) survey(path string) (tenants []string, err error) {
	var first, last int64
	err = each(path, func([]byte) bool { return true }, func(e Event) {
		if first == 0 || e.At < first {
			first = e.At
		}
		last = max(last, e.At)
		if e.Tenant != "" && !slices.Contains(tenants, e.Tenant) {
			tenants = append(tenants, e.Tenant)
		}
		switch e.Kind {
		case Offer:
			r.Offered++
		case Accept:
			r.Accepted++
		case Refuse:
			r.Refused++
		case End:
			r.Ends[e.Outcome]++
		case Fault:
			r.Faults[e.Outcome]++
		}
	})
	r.Took = time.Duration(last - first)
	slices.Sort(tenants)
	return tenants, err
}

// judge runs checks for one tenant, on all of its history and on what no stop of a process excuses.
func (r *Report) judge(h History, tenant string, terms Terms, checks func(h, rest History, rule Rule) [][]Violation) error {
	spans, err := Spans(h, tenant)
	if err != nil {
		return err
	}
	rule := Rule{Tolerance: terms.Tolerance, Slack: terms.Slack}
	if len(spans) == 0 {
		return fmt.Errorf("rate of tenant %s: not in the history", tenant)
	}
	Under(h, spans, rule)
	rest, frozen := Frozen(h, rule)
	r.Frozen += len(frozen)
	starts := rest.Of(Start)
	r.Starts += len(starts) + len(frozen)
	jobs := map[string]bool{}
	for i, e := range starts {
		jobs[e.ID] = true
		if i == 0 {
			continue
		}
		d, interval := gap(starts[i-1], e), laxer(rule.of(starts[i-1]), rule.of(e)).span(1)
		if r.Interval == 0 || float64(d)/float64(interval) < float64(r.LeastGap)/float64(r.Interval) {
			r.LeastGap, r.Interval = d, interval
		}
	}
	r.Jobs += len(jobs)
	r.Inversions += len(Order(rest))
	for _, l := range checks(h, rest, rule) {
		for _, v := range l {
			r.Found[v.Check] = append(r.Found[v.Check], v)
		}
	}
	return nil
}

// Violations returns all that was found, in the order in which it happened.
func (r *Report) Violations() []Violation {
	var lists [][]Violation
	for _, l := range r.Found {
		lists = append(lists, l)
	}
	return sorted(lists...)
}

// String is one line: what happened, and what each check found.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d starts of %d jobs", r.Starts, r.Jobs)
	var faults []string
	n := 0
	for name := range r.Faults {
		faults = append(faults, name)
		n += r.Faults[name]
	}
	slices.SortFunc(faults, func(a, b string) int {
		if r.Faults[a] != r.Faults[b] {
			return r.Faults[b] - r.Faults[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range faults {
		faults[i] = fmt.Sprintf("%s %d", name, r.Faults[name])
	}
	fmt.Fprintf(&b, ", %d offered, %d refused, %d faults (%s):", r.Offered, r.Refused, n, strings.Join(faults, ", "))
	for i, check := range Checks {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s %d", check, len(r.Found[check]))
	}
	fmt.Fprintf(&b, "; least gap %v of interval %v", r.LeastGap.Round(time.Microsecond), r.Interval.Round(time.Microsecond))
	if r.Inversions > 0 {
		fmt.Fprintf(&b, ", %d overtaken", r.Inversions)
	}
	if r.Frozen > 0 {
		fmt.Fprintf(&b, ", %d stopped at the door", r.Frozen)
	}
	return b.String()
}

// readTenant returns the events of one tenant, and those that are nobody's.
func readTenant(path, tenant string) (h History, err error) {
	ours, somebodys := []byte(`"tenant":"`+tenant+`"`), []byte(`"tenant":`)
	ids := map[string]string{} // one string for all events of a job
	err = each(path, func(line []byte) bool { return bytes.Contains(line, ours) || !bytes.Contains(line, somebodys) }, func(e Event) {
		if id, known := ids[e.ID]; known {
			e.ID = id
		} else {
			ids[e.ID] = e.ID
		}
		h = append(h, e)
	})
	h.sort()
	return h, err
}

// each calls do for those events of a history whose lines are wanted, in the order in which they
// were written.
func each(path string, want func(line []byte) bool, do func(Event)) error {
	var r Reader
	if err := r.Open(path); err != nil {
		return err
	}
	defer r.Close()
	return r.each(want, do)
}
