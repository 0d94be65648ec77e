package history

// Lost finds jobs that were accepted and never came to an end. The history must end after all of
// them should have.
func Lost(h History) []Violation {
	var out []Violation
	for _, events := range h.byJob() {
		var accepted *Event
		ended := false
		for i, e := range events {
			switch {
			case e.Kind == Accept:
				accepted = &events[i]
			case e.Kind == End && Final(e.Outcome):
				ended = true
			}
		}
		if accepted != nil && !ended {
			out = append(out, found("lost", *accepted, "accepted, and never ended"))
		}
	}
	return out
}

// Unexpected finds starts of jobs that were never offered, or that were refused. A job whose
// producer died before it heard the answer may start: it was offered.
func Unexpected(h History) []Violation {
	var out []Violation
	for _, events := range h.byJob() {
		var offered, accepted, refused bool
		for _, e := range events {
			switch e.Kind {
			case Offer:
				offered = true
			case Accept:
				accepted = true
			case Refuse:
				refused = true
			case Start:
				if !offered {
					out = append(out, found("unexpected", e, "started, and was not offered before"))
				} else if refused && !accepted {
					out = append(out, found("unexpected", e, "started, and was refused before"))
				}
			}
		}
	}
	return out
}

// Recovered returns the first starts of jobs whose producer never heard what became of its offer.
// They are no violation: a producer that does not know must expect either.
func Recovered(h History) History {
	var out History
	answered, started := map[job]bool{}, map[job]bool{}
	for _, e := range h {
		if e.Kind == Accept || e.Kind == Refuse {
			answered[e.job()] = true
		}
	}
	offered := map[job]bool{}
	for _, e := range h {
		j := e.job()
		switch {
		case e.Kind == Offer:
			offered[j] = true
		case e.Kind == Start && offered[j] && !answered[j] && !started[j]:
			started[j] = true
			out = append(out, e)
		}
	}
	return out
}

// Level finds instants at which more than most jobs of one tenant had been accepted and not
// started. most is its depth, and as many more as there are places, for jobs that have left their
// bucket and have not begun. A job whose producer has not heard yet does not count.
func Level(h History, tenant string, most int) []Violation {
	var out []Violation
	known, waiting := map[job]bool{}, map[job]bool{}
	for _, e := range h {
		j := e.job()
		switch {
		case e.Tenant != tenant || e.ID == "":
		case e.Kind == Accept && !known[j]:
			known[j], waiting[j] = true, true
			if len(waiting) > most {
				out = append(out, found("bound", e, "%d accepted and not started, want at most %d", len(waiting), most))
			}
		case e.Kind == Start || e.Kind == End: // perhaps before its producer heard
			known[j] = true
			delete(waiting, j)
		}
	}
	return out
}

// Unanswered finds offers that got no answer, or two: accepted + refused = offered, except for
// producers that died.
func Unanswered(h History) []Violation {
	var out []Violation
	for _, events := range h.byJob() {
		offers, answers := events.Of(Offer), len(events.Of(Accept))+len(events.Of(Refuse))
		if len(offers) > 0 && len(offers) != answers {
			out = append(out, found("unanswered", offers[0], "%d offers and %d answers", len(offers), answers))
		}
	}
	return out
}

// InFlight finds instants at which more than most starts of one tenant had not ended; with the
// tenant "", of all tenants together. What ran in a process ends when the process is cut off.
func InFlight(h History, tenant string, most int) []Violation {
	var out []Violation
	type start struct {
		job     job
		attempt int
	}
	running := map[start]int{} // the process that each start runs in
	for _, e := range h {
		s := start{e.job(), e.Attempt}
		switch {
		case e.Kind == Cut:
			for r, pid := range running {
				if pid == e.PID {
					delete(running, r)
				}
			}
		case tenant != "" && e.Tenant != tenant:
		case e.Kind == End:
			delete(running, s)
		case e.Kind == Start:
			running[s] = e.PID
			if len(running) > most {
				out = append(out, found("in flight", e, "%d running, want at most %d", len(running), most))
			}
		}
	}
	return out
}
