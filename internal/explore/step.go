package explore

import (
	"slices"

	"github.com/jobshaper/jobshaper/internal/model"
)

// step is one thing that may happen next. What i and p are depends on what it is.
type step struct {
	what what
	i, p int
	how  model.Ending
	lost bool // its reply is lost
}

type what int8

// In the order in which they happen where nothing goes wrong: see world.goesOn.
const (
	up         what = iota // Redis is there again
	start                  // the handler of start i begins
	repeat                 // start i repeats a call whose reply was lost, or reports an end that it could not report
	again                  // start i asks for another slot
	end                    // the handler of start i ends
	die                    // start i takes its process down
	heal                   // pool p is not cut off any more
	take                   // pool p takes ticket i to the gate
	release                // the scheduler looks
	written                // what Redis knows cannot be forgotten any more
	resume                 // tenant i goes on
	tick                   // time passes
	offer                  // job i is offered
	slowTicket             // ticket i takes as long as it likes
	slowStart              // start i does
	slowLook               // the scheduler does
	lose                   // ticket i is lost
	double                 // ticket i is doubled
	giveBack               // ticket i is given back
	crash                  // pool p dies
	cut                    // pool p is cut off
	restart                // Redis is another one; p = 1: and is away first
	doom                   // from now on Redis forgets what it learns
	forget                 // Redis is another one, and has forgotten that
	cancel                 // job i is cancelled
	hold                   // tenant i is paused; p = 1: until it is resumed
	change                 // the rate of tenant i changes
)

// steps lists what may happen now. Time passes only when nothing else is to be done at once.
func (w *world) steps() (all []step) {
	may := func(f Fault, s step) {
		if w.left[f] > 0 {
			all = append(all, s)
		}
	}
	call := func(s step) {
		all = append(all, s)
		s.lost = true
		may(Reply, s)
	}
	urgent := w.startSteps(&all, call, may)
	if w.down != 0 {
		if w.now >= w.down {
			return append(all, step{what: up})
		}
	} else {
		urgent = w.storeSteps(&all, call, may) || urgent
	}
	for p := range w.pools {
		may(Crash, step{what: crash, p: p})
		if w.pools[p].cut {
			all = append(all, step{what: heal, p: p})
		} else {
			may(Cut, step{what: cut, p: p})
		}
	}
	if !urgent && w.next() != 0 {
		all = append(all, step{what: tick})
	}
	return all
}

// startSteps are about starts. urgent says that one of them is to be done at once.
func (w *world) startSteps(all *[]step, call func(step), may func(Fault, step)) (urgent bool) {
	for i := range w.tries {
		t := &w.tries[i]
		there, hurry := w.reaches(t.pool), !t.slow
		ended := func(f Fault, how model.Ending) {
			s := step{what: end, i: i, how: how}
			if may(f, s); there && w.left[f] > 1 || f != Reply && w.left[f] > 0 && there {
				s.lost = true
				may(Reply, s)
			}
		}
		switch {
		case t.phase == held && w.now >= t.slot && w.now <= t.slot+w.tolerance():
			*all = append(*all, step{what: start, i: i})
			urgent = urgent || hurry && !w.pool(t.pool).cut
		case t.phase == held && there && w.now > t.slot:
			call(step{what: again, i: i})
			urgent = urgent || hurry
		case t.phase == held && there && w.paused(t.tenant):
			call(step{what: again, i: i}) // pools recall what they hold
		case t.phase == running && w.seen.fate(t.tenant, t.id).poison:
			*all = append(*all, step{what: die, i: i})
			urgent = urgent || t.lost && there
			continue
		case t.phase == running:
			urgent = urgent || t.lost && there // handlers heed their contexts
			if s := (step{what: end, i: i, how: model.EndOK}); there {
				call(s)
			} else {
				*all = append(*all, s)
			}
			ended(Fail, model.EndError)
			ended(Throttle, model.EndThrottled)
		case there && t.phase != held:
			call(step{what: repeat, i: i})
			urgent = urgent || hurry
		}
		if t.phase == held || t.phase == running {
			ended(Back, model.EndBack)
		}
		if t.phase != running && hurry {
			may(Slow, step{what: slowStart, i: i})
		}
	}
	return urgent
}

// storeSteps are about Redis, and what is on its way to it.
func (w *world) storeSteps(all *[]step, call func(step), may func(Fault, step)) (urgent bool) {
	for i, k := range w.tickets {
		if slices.ContainsFunc(w.tickets[:i], func(o ticket) bool { return o == k }) {
			continue
		}
		for p := range w.pools {
			if !w.pools[p].cut && w.free(&w.pools[p]) > 0 {
				call(step{what: take, i: i, p: p})
				urgent = urgent || !k.slow
			}
		}
		may(Lose, step{what: lose, i: i})
		may(Double, step{what: double, i: i})
		may(Back, step{what: giveBack, i: i})
		if !k.slow {
			may(Slow, step{what: slowTicket, i: i})
		}
	}
	if w.finds() {
		*all = append(*all, step{what: release})
		if urgent = urgent || !w.late; !w.late {
			may(Slow, step{what: slowLook})
		}
	}
	offered := map[string]bool{} // a tenant offers its jobs one after another
	for i := range w.seen.fates {
		f := &w.seen.fates[i]
		if !f.accepted && !offered[f.tenant] {
			offered[f.tenant] = true
			call(step{what: offer, i: i})
		}
		if f.accepted && f.end == "" {
			may(Cancel, step{what: cancel, i: i})
		}
	}
	for i := range w.s.Tenants {
		if w.d.Tenants[w.s.Tenants[i].Name].Until >= model.Forever {
			*all = append(*all, step{what: resume, i: i})
		}
		may(Pause, step{what: hold, i: i})
		may(Stop, step{what: hold, i: i, p: 1})
		if w.saved == nil { // a rate that is forgotten is in force again
			may(Change, step{what: change, i: i})
		}
	}
	may(Restart, step{what: restart})
	may(Away, step{what: restart, p: 1})
	switch {
	case w.saved != nil:
		*all = append(*all, step{what: forget}, step{what: written})
	case len(w.tickets)+len(w.tries) > 0: // else nothing is granted soon
		may(Forget, step{what: doom})
	}
	return urgent
}

// finds reports whether the scheduler would find something to do.
func (w *world) finds() bool {
	c := w.clone()
	c.release()
	c.late = w.late
	return c.key() != w.key()
}

// do takes a step.
func (w *world) do(s step) {
	if s.lost {
		w.left[Reply]--
	}
	switch s.what {
	case up:
		w.comesBack()
	case start:
		w.begins(s.i)
	case repeat:
		if w.tries[s.i].phase == reporting {
			w.reports(s.i, s.lost)
		} else {
			w.asks(s.i, s.lost)
		}
	case again:
		w.another(s.i, s.lost)
	case end:
		w.spend(map[model.Ending]Fault{model.EndError: Fail, model.EndThrottled: Throttle, model.EndBack: Back}, s.how)
		w.ends(s.i, s.how, s.lost)
	case die:
		w.dies(s.i)
	case heal:
		w.heals(s.p)
	case take:
		w.takes(s.i, s.p, s.lost)
	case release:
		w.release()
	case written:
		w.saved = nil
	case resume:
		w.queue().Pause(w.s.Tenants[s.i].Name, 0)
	case tick:
		w.passes()
	case offer:
		w.offers(s.i, s.lost)
	default:
		w.breaks(s)
	}
	w.check()
}

func (w *world) spend(of map[model.Ending]Fault, how model.Ending) {
	if f, ok := of[how]; ok {
		w.left[f]--
	}
}

// breaks takes a step that is a fault, or an order, and counts.
func (w *world) breaks(s step) {
	switch s.what {
	case slowTicket:
		w.left[Slow]--
		w.tickets[s.i].slow = true
	case slowStart:
		w.left[Slow]--
		t := &w.tries[s.i]
		t.slow = true
		if t.phase == entering || t.phase == asking || t.told {
			t.cut = true // its pool does not know what it owns, so nobody extends the lease
		}
	case slowLook:
		w.left[Slow]--
		w.late = true
	case lose:
		w.left[Lose]--
		w.tickets = slices.Delete(w.tickets, s.i, s.i+1)
	case double:
		w.left[Double]--
		w.tickets = append(w.tickets, w.tickets[s.i])
	case giveBack:
		w.left[Back]--
		w.queue().GiveBack(w.tickets[s.i].Ticket)
		w.tickets = slices.Delete(w.tickets, s.i, s.i+1)
	case crash:
		w.left[Crash]--
		w.crashes(s.p)
	case cut:
		w.left[Cut]--
		w.cuts(s.p)
	case restart:
		if s.p == 0 {
			w.left[Restart]--
			w.comesBack()
			return
		}
		w.left[Away]--
		w.down = w.now + away
	case doom:
		w.left[Forget]--
		w.saved = w.d.Clone()
	case forget:
		w.forgets()
	case cancel:
		w.left[Cancel]--
		w.cancels(s.i)
	case hold:
		if s.p == 1 {
			w.left[Stop]--
			w.queue().Pause(w.s.Tenants[s.i].Name, -1)
			return
		}
		w.left[Pause]--
		w.queue().Pause(w.s.Tenants[s.i].Name, pause)
	case change:
		w.left[Change]--
		w.changes(s.i)
	}
}

// goesOn picks what happens next where nothing goes wrong any more and everybody does at once what
// is to be done: the first of the steps by what they are, and then as they are listed. It returns
// false when nothing is left to do.
func goesOn(steps []step) (best step, ok bool) {
	best.what = offer
	for _, s := range steps {
		if s.what < best.what && !s.lost && (s.how == "" || s.how == model.EndOK) {
			best, ok = s, true
		}
	}
	return best, ok
}
