package explore

import (
	"fmt"

	"github.com/jobshaper/jobshaper/internal/model"
)

// trace is the way to a state in words, and the step that was taken there.
func (e *explorer) trace(id int32, last *step) (lines []string) {
	steps := e.way(id)
	if last != nil {
		steps = append(steps, *last)
	}
	w := newWorld(e.s)
	for _, s := range steps {
		lines = append(lines, w.tells(s))
	}
	return lines
}

// traceOn is the way to a state, and how it goes on from there if nothing goes wrong.
func (e *explorer) traceOn(id int32, most int) []string {
	lines := append(e.trace(id, nil), "from here on nothing goes wrong:")
	w := e.replay(id)
	for range most {
		s, ok := goesOn(w.steps())
		if !ok {
			break
		}
		lines = append(lines, w.tells(s))
	}
	return lines
}

// tells takes a step and says what it was.
func (w *world) tells(s step) string {
	from, said := w.now, w.says(s)
	wrong := w.try(s)
	line := fmt.Sprintf("%7.1f ms  %s", float64(from-begin)/1000, said)
	switch s.what {
	case tick:
		line += fmt.Sprintf(" until %.1f ms", float64(w.now-begin)/1000)
	case take, again, repeat, end:
		for i := range w.tries {
			if t := &w.tries[i]; t.phase == held {
				line += fmt.Sprintf("; %s holds the slot at %.1f ms, attempt %d", t.id, float64(t.slot-begin)/1000, t.attempt)
			}
		}
	case release:
		for _, k := range w.tickets {
			line += fmt.Sprintf("; a ticket for %s", k.ID)
		}
	}
	if s.lost {
		line += "; the reply is lost"
	}
	if wrong != "" {
		line += " -- " + wrong
	}
	return line
}

// says says what a step is, before it is taken.
func (w *world) says(s step) string {
	job := func() string { return w.tries[s.i].tenant + "'s " + w.tries[s.i].id }
	switch s.what {
	case up:
		return "Redis is there again"
	case start:
		return fmt.Sprintf("%s begins in %s", job(), w.tries[s.i].pool)
	case repeat:
		if t := &w.tries[s.i]; t.phase == entering {
			return fmt.Sprintf("%s repeats its call to the gate", t.pool)
		}
		return fmt.Sprintf("%s repeats its call about %s", w.tries[s.i].pool, job())
	case again:
		return fmt.Sprintf("%s asks for another slot for %s", w.tries[s.i].pool, job())
	case end:
		return fmt.Sprintf("%s ends in %s: %s", job(), w.tries[s.i].pool, s.how)
	case die:
		return fmt.Sprintf("%s takes %s down", job(), w.tries[s.i].pool)
	case heal:
		return w.pools[s.p].name + " reaches Redis again"
	case take:
		return fmt.Sprintf("%s takes a ticket for %s to the gate", w.pools[s.p].name, w.tickets[s.i].ID)
	case release:
		return "the scheduler looks"
	case written:
		return "Redis has written to its disk what it knows"
	case resume:
		return w.s.Tenants[s.i].Name + " is resumed"
	case tick:
		return "time passes"
	case offer:
		return fmt.Sprintf("%s offers %s", w.seen.fates[s.i].tenant, w.seen.fates[s.i].id)
	}
	return w.saysFault(s)
}

func (w *world) saysFault(s step) string {
	switch s.what {
	case slowTicket:
		return fmt.Sprintf("the ticket for %s takes its time", w.tickets[s.i].ID)
	case slowStart:
		if t := &w.tries[s.i]; t.phase == entering {
			return t.pool + " takes its time to repeat its call"
		}
		return fmt.Sprintf("%s takes its time with %s", w.tries[s.i].pool, w.tries[s.i].id)
	case slowLook:
		return "the scheduler takes its time"
	case lose:
		return fmt.Sprintf("the ticket for %s is lost", w.tickets[s.i].ID)
	case double:
		return fmt.Sprintf("the ticket for %s is doubled", w.tickets[s.i].ID)
	case giveBack:
		return fmt.Sprintf("the ticket for %s is given back", w.tickets[s.i].ID)
	case crash:
		return w.pools[s.p].name + " dies"
	case cut:
		return w.pools[s.p].name + " is cut off"
	case restart:
		if s.p == 1 {
			return "Redis goes away"
		}
		return "Redis restarts, and knows what it knew"
	case doom:
		return "from now on Redis does not write what it learns"
	case forget:
		return fmt.Sprintf("Redis restarts, and knows what it knew at %.1f ms", float64(w.saved.Now-begin)/1000)
	case cancel:
		return w.seen.fates[s.i].id + " is cancelled"
	case hold:
		return w.s.Tenants[s.i].Name + " is paused"
	default:
		was := w.d.Tenants[w.s.Tenants[s.i].Name].Policy.Rate
		return fmt.Sprintf("%s's interval was %v, and is changed", w.s.Tenants[s.i].Name, was.Interval())
	}
}

var _ Queue = (*model.Downstream)(nil)
