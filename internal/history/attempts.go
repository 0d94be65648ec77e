package history

import "time"

// anew reports whether a start begins another life of its job's id: the one before ended without
// having been done, cancelled or dead and removed, and the id was accepted again. end is the last
// of that life; nil = none.
func anew(start Event, end *Event) bool {
	return start.Attempt == 1 && end != nil && (end.Outcome == Cancelled || end.Outcome == Dead)
}

// Attempts finds jobs whose attempts do not strictly increase from start to start.
func Attempts(h History) []Violation {
	var out []Violation
	for _, events := range h.byJob() {
		last := 0
		var end *Event
		for i, e := range events {
			switch {
			case e.Kind == End:
				end = &events[i]
			case e.Kind != Start:
			case anew(e, end):
				last, end = 1, nil
			default:
				if e.Attempt <= last {
					out = append(out, found("attempts", e, "attempt %d after attempt %d", e.Attempt, last))
				}
				last = max(last, e.Attempt)
			}
		}
	}
	return out
}

// Ends finds attempts that ended twice: only the owner of a start may say how it ended, and only
// once.
func Ends(h History) []Violation {
	var out []Violation
	for _, events := range h.byJob() {
		ended := map[int]string{}
		var end *Event
		for i, e := range events {
			switch {
			case e.Kind == Start && anew(e, end):
				ended, end = map[int]string{}, nil
			case e.Kind == End:
				if before, twice := ended[e.Attempt]; twice && e.Attempt > 0 {
					out = append(out, found("ends", e, "attempt %d ended as %s, and was %s before", e.Attempt, e.Outcome, before))
				}
				ended[e.Attempt], end = e.Outcome, &events[i]
			}
		}
	}
	return out
}

// OneOwner finds starts of a job while an earlier start of it had not ended, although the process
// of the earlier one had not been killed or cut off. A job that never started again has no other
// owner.
func OneOwner(h History) []Violation {
	var out []Violation
	running := map[job]Event{}
	for _, e := range h {
		before, runs := running[e.job()]
		switch {
		case e.Kind == Cut:
			for j, s := range running {
				if s.PID == e.PID {
					delete(running, j)
				}
			}
		case e.Kind == End && runs && e.Attempt == before.Attempt:
			delete(running, e.job())
		case e.Kind == Start && runs:
			out = append(out, found("one owner", e, "attempt %d, while attempt %d ran", e.Attempt, before.Attempt))
			running[e.job()] = e
		case e.Kind == Start:
			running[e.job()] = e
		}
	}
	return out
}

// ReportWithin is how long after a handler's end the death of its process may keep that end from
// everybody else; if Redis is down meanwhile, longer by that time, and by as much again until the
// report is repeated.
const ReportWithin = time.Second

// reportBy is the instant until which the end of a handler may be unreported. outages are pairs of
// Down and Up.
func reportBy(end int64, outages History) int64 {
	by := end + int64(ReportWithin)
	for i, e := range outages {
		if e.Kind == Down && e.At <= by && i+1 < len(outages) && outages[i+1].At >= end {
			by = outages[i+1].At + 2*int64(ReportWithin)
		}
	}
	return by
}

// Duplicated finds starts that had no reason: the job's previous start had not ended, or was done,
// although its process was not killed or cut off while that start ran or was being reported.
func Duplicated(h History) []Violation {
	cuts := map[int][]int64{}
	for _, e := range h.Of(Cut) {
		cuts[e.PID] = append(cuts[e.PID], e.At)
	}
	outages := h.where(func(e Event) bool { return e.Kind == Down || e.Kind == Up })
	var out []Violation
	for _, events := range h.byJob() {
		var before, end *Event
		for i, e := range events {
			switch e.Kind {
			case End:
				if before != nil && e.Attempt == before.Attempt {
					end = &events[i]
				}
			case Start:
				if before != nil && !again(*before, end, cuts[before.PID], outages) {
					out = append(out, found("duplicated", e, "attempt %d, and attempt %d %s", e.Attempt, before.Attempt, fate(end)))
				}
				before, end = &events[i], nil
			}
		}
	}
	return out
}

// again reports whether there was a reason for another start after one that ended so. cuts are the
// times at which its process was cut off.
func again(start Event, end *Event, cuts []int64, outages History) bool {
	if end != nil && end.Outcome != Done {
		return true
	}
	for _, at := range cuts {
		if at >= start.At && (end == nil || at <= reportBy(end.At, outages)) {
			return true
		}
	}
	return false
}

func fate(end *Event) string {
	if end == nil {
		return "still ran"
	}
	return "was " + end.Outcome
}

// Order finds jobs of one tenant that were accepted before another was even offered, and first
// started after it, by their slots. Jobs whose first start was not their first attempt are left
// out: their turn came, and something was in the way. So are jobs that were never started.
func Order(h History) []Violation {
	var out []Violation
	offered, accepted, seen := map[job]int64{}, map[job]int64{}, map[job]bool{}
	first := map[string]History{}
	for _, e := range h {
		j := e.job()
		switch e.Kind {
		case Offer:
			if _, twice := offered[j]; !twice {
				offered[j] = e.At
			}
		case Accept:
			if _, twice := accepted[j]; !twice {
				accepted[j] = e.At
			}
		case Start:
			if !seen[j] && e.Attempt == 1 && accepted[j] > 0 {
				first[e.Tenant] = append(first[e.Tenant], e)
			}
			seen[j] = true
		}
	}
	for _, starts := range first {
		bySlot(starts)
		// From the last start back: the earliest accepted of those that started later.
		earliest := starts[len(starts)-1]
		for i := len(starts) - 2; i >= 0; i-- {
			e := starts[i]
			if accepted[earliest.job()] < offered[e.job()] {
				out = append(out, found("order", e, "started before job %q, which was accepted before it was offered", earliest.ID))
			}
			if accepted[e.job()] < accepted[earliest.job()] {
				earliest = e
			}
		}
	}
	return out
}
