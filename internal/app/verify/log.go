package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// Options say what part of a departure log is judged. The zero value means all of it.
type Options struct {
	Tenant string        // only this one
	Since  time.Duration // only what was written within this time
}

// NoLogError says that there is nothing to judge. Off: the downstream does not log.
type NoLogError struct {
	Downstream string
	Off        bool
}

func (e *NoLogError) Error() string {
	if e.Off {
		return fmt.Sprintf("downstream %s has no departure log, so there is nothing to judge: want departure_log: 100000 in its"+
			" configuration, or shaper run --departure-log 100000", e.Downstream)
	}
	return fmt.Sprintf("the departure log of downstream %s is on, and holds no start yet that can be judged", e.Downstream)
}

// Log judges a downstream by its departure log. Its error is a *NoLogError if there is none.
func Log(ctx context.Context, downstream string, admin *shaper.Admin, o Options) (Findings, error) {
	policy, err := admin.Downstream(ctx)
	if err != nil {
		return Findings{}, err
	}
	b := newBook(o)
	if err := admin.DepartureLog(ctx, o.Since, func(e shaper.LogEntry) error { b.enter(e); return nil }); err != nil {
		return Findings{}, err
	}
	if len(b.granted) == 0 && o.Tenant != "" {
		if _, err := admin.Tenant(ctx, o.Tenant); err != nil { // perhaps it was never seen
			return Findings{}, err
		}
	}
	if len(b.granted) == 0 {
		return Findings{}, &NoLogError{downstream, policy.DepartureLog == 0}
	}
	v := b.judge()
	v.Of = "downstream " + downstream
	if o.Tenant != "" {
		v.Of = "tenant " + o.Tenant + " of " + v.Of
	}
	if policy.DepartureLog == 0 {
		v.Unjudged = append(v.Unjudged, "what came after the log was turned off")
	}
	return v, nil
}

// logInstant is what workers say of their starts, see shaper.LogEntry.
const logInstant = "the first byte of a request, the release of a program, the first instruction of any other handler"

// judge runs the checks on the book.
func (b *book) judge() Findings {
	b.close()
	v := Findings{Starts: len(b.granted) - b.missed - b.unstarted, Instant: logInstant, wall: func(at int64) time.Time { return time.Unix(0, at) }}
	v.From, v.To = time.UnixMicro(b.granted[0].Slot), time.UnixMicro(b.granted[len(b.granted)-1].Slot)
	of := " of " + count(tenants(b.granted), "tenant")
	if len(b.starts) > 0 {
		v.starts(b.starts, history.Rule{})
	}
	v.judge("slots", count(len(b.granted), "slot")+of, history.Slots(b.granted, history.Rule{}))
	if b.o.Tenant == "" && len(b.together) > 0 {
		v.judge("common rate", count(len(b.together), "start")+" of all tenants"+closest(b.together, history.Rule{}),
			history.Spacing(b.together, history.Rule{}), history.Windows(b.together, history.Rule{}), history.Slots(b.shared, history.Rule{}))
	}
	of = count(len(b.jobs.Of(history.Start)), "start") + " of " + count(len(b.uses), "job")
	v.judge("attempts strictly increase", of, history.Attempts(b.jobs))
	v.judge("one owner", of, history.Duplicated(b.jobs))
	v.judge("one finish an attempt", count(len(b.jobs.Of(history.End)), "end"), history.Ends(b.jobs))
	v.Seen, v.Unjudged = b.seen(), b.unjudged()
	return v
}

// seen lists what else happened.
func (b *book) seen() (out []string) {
	for _, s := range []struct {
		n    int
		what string
	}{
		{b.missed, "missed slot"}, {b.unstarted, "slot"}, {b.lost, "lost lease"}, {b.rates, "change"}, {b.pauses, "pause"}, {b.restarts, "restart"},
	} {
		if s.n == 0 {
			continue
		}
		text := count(s.n, s.what)
		switch s.what {
		case "missed slot":
			text += ", each replaced by a later one"
		case "slot":
			text += " that nothing began in: missed, the tenant paused, the job cancelled or the worker stopped"
		case "change":
			text += " of a tenant's rate"
		case "pause":
			text += " by hand"
		case "restart":
			text += " of Redis, after which every tenant waits an interval"
		}
		out = append(out, text)
	}
	return out
}

// unjudged lists what the log does not say.
func (b *book) unjudged() (out []string) {
	add := func(n int, format string, args ...any) {
		if n > 0 {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	if !b.whole {
		add(1, "what was before %s: the log reaches back no further, since it keeps only so many entries", b.first.Format(instant))
	}
	if b.o.Since > 0 {
		add(1, "what was more than %v ago, as you asked", b.o.Since)
	}
	add(b.gaps, "what happened while the log was off, %s", count(b.gaps, "time"))
	running := 0
	for _, s := range b.states {
		if !s.ended {
			running++
		}
	}
	add(running+b.untold, "when %s began whose end is not known (still running, or the worker vanished): only the slots were judged",
		count(running+b.untold, "start"))
	add(b.steps, "gaps across the moment when Redis' clock stepped back (%s): each is taken to be as short as it can have been",
		count(b.steps, "time"))
	add(b.noise, "%s of the log that cannot be read", count(b.noise, "entry"))
	if b.o.Tenant != "" && len(b.together) > 0 {
		add(1, "the rate that all tenants share, since only one of them was looked at")
	}
	return append(out, "whether a job was lost, unexpected or out of order, and the bound: the log holds departures only")
}
