package model

import "time"

// Ending is how a start ended.
type Ending string

const (
	EndOK           Ending = "ok"
	EndError        Ending = "error"         // it is tried again after a delay, unless it failed too often
	EndDead         Ending = "dead"          // it is not tried again
	EndUncharged    Ending = "uncharged"     // failed without being charged an attempt
	EndThrottled    Ending = "throttled"     // the downstream asked to slow down: its tenant is paused
	EndThrottledAll Ending = "throttled-all" // or the whole downstream
	EndBack         Ending = "back"          // handed back at a shutdown
)

// Report says how a start ended. Only the owner of a job's last start may say so.
type Report struct {
	Tenant, ID, Token string
	Ending            Ending
	Delay             time.Duration // backoff of an error, pause of a throttle
	Next              string        // the token for the next job, "-" = no more work
	Late              string        // µs from the slot to the start, "?" = not known, "-" = it never began
}

// Ended is the answer to a Report.
type Ended struct {
	Became string // done, retry, dead, cancelled, back; stale: the token does not own the job
	InARow int64  // starts of the tenant that were throttled in a row, after a throttled one
	Next   *Grant // what the worker runs next
}

// Stale is what becomes of a report that came too late.
const Stale = "stale"

// Finish records how starts ended, each on its own, and gives those workers that ask for more the
// next job of the downstream, with its slot. Tenants are filed after the last report, so what one
// report brings back to an idle tenant is not given to the next; but a tenant that had as many in
// flight as it may is filed at once. A report that is repeated is known by its token.
func (d *Downstream) Finish(reports ...Report) []Ended {
	f := finish{visit: d.visit(), touched: map[*Tenant]bool{}}
	var out []Ended
	for _, r := range reports {
		out = append(out, f.report(r))
	}
	for t, gave := range f.touched {
		if gave {
			d.picked(t)
		} else {
			d.file(t)
		}
	}
	return out
}

// finish is a call of Finish.
type finish struct {
	visit
	promoted bool
	touched  map[*Tenant]bool // true: it gave a next job
}

func (f *finish) report(r Report) Ended {
	t := f.Tenant(r.Tenant)
	j := f.remembered(t, r.ID)
	if j == nil || j.Token != r.Token {
		return Ended{Became: Stale}
	}
	if !j.Owned(r.Token) {
		return f.replayed(j, r.Next)
	}
	if !f.touched[t] {
		f.touched[t] = false
	}
	cancelled, attempt := j.State == Cancelling, j.Starts
	never := r.Late == "-"
	unstarted := never && (r.Ending == EndBack || r.Ending == EndDead)
	if unstarted {
		j.calledOff()
	} else {
		f.began(t, j)
	}
	throttled := r.Ending == EndThrottled || r.Ending == EndThrottledAll
	if throttled {
		t.ThrottledRow++
	} else if r.Ending != EndBack && !unstarted {
		t.ThrottledRow = 0
	}
	pool := PoolOf(r.Token)
	fell := f.Fell[pool]
	f.left(t, j)
	if r.Ending != EndBack && !unstarted {
		j.Suspect = 0
	}
	j.State = "" // in no book, until the next one is picked
	if took := max(0, f.Now-j.Slot); !never && t.Took < 0 {
		t.Took = took
	} else if !never {
		t.Took = (7*t.Took + took) / 8
	}
	if t.inFlight()+1 == f.Limits(t).MaxInFlight {
		f.file(t)
		f.promoted = false
	}

	out := Ended{}
	// Only after these is there a next job; after the others this job itself is what should run
	// next. The next one is picked before this one is written down, so that it cannot be this one.
	if r.Next != "-" && (r.Ending == EndOK || r.Ending == EndError || r.Ending == EndUncharged || r.Ending == EndDead) {
		if out.Next = f.next(r.Next); out.Next != nil {
			j.Next = out.Next.Tenant + "/" + out.Next.ID
			if fell { // the pool has been running jobs all the time
				f.Fell[pool] = true
			}
		}
	}
	out.Became = f.became(t, j, r, cancelled, unstarted)
	if throttled {
		out.InARow = t.ThrottledRow
	}
	became := out.Became
	if throttled && became == "back" {
		became = "throttled"
	}
	f.log("f", t.Name, j.ID, attempt, became, r.Late, f.Now-j.Slot)
	return out
}

// next starts the next job of the downstream at once.
func (f *finish) next(token string) *Grant {
	if !f.promoted {
		f.promote()
		f.promoted = true
	}
	if most := f.Policy.MaxInFlight; most > 0 && f.inFlight() >= most {
		return nil
	}
	t, j := f.pick(true)
	if t == nil {
		return nil
	}
	f.entered(t, j)
	f.run(t, j, f.slot(t), token)
	f.touched[t] = true
	return f.grant(j)
}

// became is what becomes of a job that ended so.
func (f *finish) became(t *Tenant, j *Job, r Report, cancelled, unstarted bool) string {
	until := f.Now + r.Delay.Microseconds()
	switch r.Ending {
	case EndOK:
		f.end(t, j, Done)
		return string(Done)
	case EndBack:
		if cancelled {
			break
		}
		if !unstarted {
			j.Forgiven++
		}
		t.toFront(j)
		return "back"
	case EndThrottled, EndThrottledAll:
		if cancelled {
			break
		}
		stands := &t.Until
		if r.Ending == EndThrottledAll {
			stands = &f.Until
		}
		*stands = max(*stands, until)
		j.Forgiven++
		j.Throttles++
		f.count(t, "throttled")
		if j.Throttles >= f.Limits(t).MaxThrottles {
			f.bury(t, j)
			return "dead"
		}
		t.toFront(j)
		return "back"
	case EndUncharged:
		if cancelled {
			break
		}
		j.Forgiven++
		j.Throttles++
		if j.Throttles >= f.Limits(t).MaxThrottles {
			f.bury(t, j)
			return "dead"
		}
		t.later(j, Backoff, until)
		f.count(t, "retried")
		return "retry"
	default:
		if cancelled {
			break
		}
		f.count(t, "failed")
		if r.Ending == EndDead || j.Starts-j.Forgiven >= f.Limits(t).MaxAttempts {
			f.bury(t, j)
			return "dead"
		}
		t.later(j, Backoff, until)
		f.count(t, "retried")
		return "retry"
	}
	f.end(t, j, Cancelled)
	return string(Cancelled)
}

// replayed answers a report that was made before: what became of the job, and the next job if it is
// still this worker's.
func (f *finish) replayed(j *Job, next string) Ended {
	out := Ended{Became: "back"}
	switch {
	case j.Ended():
		out.Became = string(j.State)
	case j.State == Dead:
		out.Became = "dead"
	case j.State == Backoff:
		out.Became = "retry"
	}
	if n := f.named(j.Next); next != "-" && n.Owned(next) {
		out.Next = f.grant(n)
	}
	return out
}
