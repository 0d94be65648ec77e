package verify

import (
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
)

// FileOptions say how a history file is judged.
type FileOptions struct {
	Rule   history.Rule // of every tenant
	Tenant string       // only this one; empty = all
	Bound  int          // how many jobs of a tenant may be accepted but not started: its depth plus all places; 0 = not judged
}

// File judges a history file, as package history writes it. A promise that the file has no events
// for cannot be judged.
func File(path string, o FileOptions) (Findings, error) {
	h, err := history.Read(path)
	if err != nil {
		return Findings{}, err
	}
	if o.Tenant != "" {
		h = tenant(h, o.Tenant)
	}
	v := Findings{Of: path, wall: func(at int64) time.Time { return time.Unix(0, at) }}
	if len(h) > 0 && h[0].Wall > 0 {
		v.wall = func(at int64) time.Time { return time.UnixMicro(h[0].Wall).Add(time.Duration(at - h[0].At)) }
	}
	starts := h.Of(history.Start)
	v.Starts = len(starts)
	if len(starts) == 0 {
		v.Unjudged = append(v.Unjudged, "spacing: no start in the file")
	} else {
		v.From, v.To = v.wall(starts[0].At), v.wall(starts[len(starts)-1].At)
		v.fileStarts(h, starts, o)
	}
	v.fileJobs(h, o)
	return v, nil
}

// tenant is the history of one tenant, with the events that cut processes off.
func tenant(h history.History, name string) (out history.History) {
	for _, e := range h {
		if e.Tenant == name || e.Kind == history.Cut {
			out = append(out, e)
		}
	}
	return out
}

func (v *Findings) fileStarts(h, starts history.History, o FileOptions) {
	of := count(len(starts), "start") + " of " + count(tenants(starts), "tenant")
	v.judge("spacing", of+closest(starts, o.Rule), history.Spacing(h, o.Rule))
	v.judge("windows", of+inWindows, history.Windows(h, o.Rule))
	var timed history.History
	for _, e := range starts {
		if e.Slot != 0 && e.Wall != 0 {
			timed = append(timed, e)
		}
	}
	if len(timed) == 0 {
		v.Unjudged = append(v.Unjudged, "slots, on time: no start in the file has a slot")
	} else {
		v.judge("slots", of, history.Slots(h, o.Rule))
		v.judge("on time", of+latest(timed, o.Rule), history.OnTime(timed, o.Rule))
	}
	v.judge("attempts strictly increase", of, history.Attempts(h))
	v.judge("one owner", of, history.OneOwner(h))
	v.judge("duplicated", of, history.Duplicated(h))
	v.judge("one finish an attempt", count(len(h.Of(history.End)), "end"), history.Ends(h))
}

// fileJobs judges the promises about what producers were told.
func (v *Findings) fileJobs(h history.History, o FileOptions) {
	offers, accepts := h.Of(history.Offer), h.Of(history.Accept)
	if len(offers) == 0 {
		v.Unjudged = append(v.Unjudged, "unexpected, recovered, order: no offer in the file")
	} else {
		v.judge("unexpected", count(len(offers), "offer"), history.Unexpected(h))
		v.judge("order", count(len(offers), "offer"), history.Order(h))
		if n := len(history.Recovered(h)); n > 0 {
			v.Seen = append(v.Seen, count(n, "recovered job")+", started although their producers never heard that they were accepted")
		}
	}
	if len(accepts) == 0 {
		v.Unjudged = append(v.Unjudged, "lost, bound: no answer to an offer in the file")
		return
	}
	v.judge("lost", count(len(accepts), "accepted job"), history.Lost(h))
	if o.Bound == 0 {
		v.Unjudged = append(v.Unjudged, "bound: want --bound, a tenant's depth plus all places")
		return
	}
	var found [][]history.Violation
	names := map[string]bool{}
	for _, e := range accepts {
		if !names[e.Tenant] {
			names[e.Tenant] = true
			found = append(found, history.Level(h, e.Tenant, o.Bound))
		}
	}
	v.judge("bound", count(len(accepts), "accepted job"), found...)
}
