package main

import (
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/shaper"
)

// accepted says to people that a job was accepted, and when it will start.
func accepted(r shaper.Result) string {
	head := "accepted " + r.ID
	if r.Duplicate {
		head = "accepted before " + r.ID + " (the same job, it runs once)"
	}
	left := time.Until(r.ETA)
	switch {
	case r.Duplicate && (r.State == shaper.StateDone || r.State == shaper.StateRunning):
		return head + " " + map[shaper.State]string{shaper.StateDone: "is done", shaper.StateRunning: "is running"}[r.State]
	case r.ETA.IsZero():
		return head + position(r) + whyNot[r.Note]
	case left < 20*time.Millisecond && r.Position <= 1:
		return head + " starts at once"
	}
	return fmt.Sprintf("%s%s starts in about %s", head, position(r), about(left))
}

func position(r shaper.Result) string {
	if r.Position == 0 {
		return ""
	}
	return fmt.Sprintf(" position %d,", r.Position)
}

// whyNot says why the start cannot be predicted.
var whyNot = map[string]string{
	shaper.NoteParked:    " starts when its tenant is set right: it is parked, see shaper tenants show",
	shaper.NotePaused:    " starts when its queue is resumed: it is paused, see shaper tenants show",
	shaper.NoteNoWorkers: " starts when workers come: none serves this downstream now, see shaper run",
	shaper.NoteInFlight:  " starts when running jobs make room: as many as allowed are in flight",
}

// about rounds a time to what matters to people: "0.3 s", "12 s", "5m30s".
func about(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", max(d.Seconds(), 0.1))
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// refusal says why a job was refused and what to do about it.
func refusal(r shaper.Result) string {
	switch r.Reason {
	case shaper.RefusedFull:
		return fmt.Sprintf("the queue of tenant %s is full; try again in %s, or let --wait do it", r.Tenant, about(r.RetryAfter))
	case shaper.RefusedLimited:
		return limited(r)
	case shaper.RefusedConflict:
		return fmt.Sprintf("id %q is that of another job of tenant %s: want another id, or the same type, payload and headers", r.ID, r.Tenant)
	case shaper.RefusedDead:
		return fmt.Sprintf("job %q of tenant %s is dead: requeue or remove it, see shaper dead", r.ID, r.Tenant)
	case shaper.RefusedUnknown:
		return fmt.Sprintf("tenant %q is not served by downstream %s: want one that is, see shaper tenants ls", r.Tenant, r.Downstream)
	case shaper.RefusedParked:
		return fmt.Sprintf("tenant %s is parked, since a field of it cannot be read: see shaper tenants show %s; try again in %s", r.Tenant, r.Tenant, about(r.RetryAfter))
	case shaper.RefusedMemory:
		return fmt.Sprintf("the store has no memory left; try again in %s", about(r.RetryAfter))
	}
	return fmt.Sprintf("%s; try again in %s", r.Reason, about(r.RetryAfter))
}

// limited says which admission rule refused a job, what is left of it, and when it will let one
// pass.
func limited(r shaper.Result) string {
	limit, left := "an admission rule", ""
	if v := r.Admission; v != nil {
		for _, ruling := range v.Rulings {
			if ruling.Rule.Name == v.Refused {
				limit = "limit " + describe(ruling.Rule, r)
				left = fmt.Sprintf(", %d of %d left", ruling.Remaining, ruling.Limit)
			}
		}
	}
	if r.RetryAfter < 0 {
		return limit + " allows less than one job takes: it lets none pass"
	}
	return fmt.Sprintf("%s is reached%s; try again in %s, or let --wait do it", limit, left, about(r.RetryAfter))
}

// describe names a rule, what it says, and for whom.
func describe(rule policing.Rule, r shaper.Result) string {
	name, whose := rule.Name, "tenant "+r.Tenant
	if rule.Per == policing.PerDownstream {
		whose = "downstream " + r.Downstream
	}
	rule.Name, rule.Per = "", policing.PerTenant // said already
	return fmt.Sprintf("%s (%s) of %s", name, rule, whose)
}

// ended says what became of a job.
func ended(j shaper.Job) string {
	switch j.State {
	case shaper.StateDone:
		if len(j.Result) > 0 {
			return fmt.Sprintf("done: %s", j.Result)
		}
		return "done"
	case shaper.StateDead:
		return fmt.Sprintf("dead (%s) after %d starts: %s", j.Reason, j.Attempt, j.Error)
	}
	return string(j.State)
}
