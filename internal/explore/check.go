package explore

import (
	"github.com/jobshaper/jobshaper/internal/model"
)

// check compares what the queue holds with what happened: each job that was accepted is there, in
// one place, and has not ended but for a reason.
func (w *world) check() {
	r := &w.seen
	for i := range r.fates {
		f := &r.fates[i]
		if !f.accepted || f.mayGo {
			continue
		}
		j := w.d.Job(f.tenant, f.id)
		switch {
		case j == nil:
			r.breach("%s was accepted, and is not there", f.id)
		case j.State == model.Dead && f.end == "":
			w.crashedTooOften(f, j)
		case f.cancelled && f.end == "" && j.State == model.Cancelled:
			// It had its slot, and needed not start to end; or its worker is gone.
			f.ends(r, string(model.Cancelled))
		case over(j) && f.end == "":
			r.breach("%s is %s, and nobody reported its end or cancelled it", f.id, j.State)
		case !over(j) && f.end != "" && !r.forgot:
			r.breach("%s is %s, and yet it is in state %s", f.id, f.end, j.State)
		case !over(j):
			w.placed(j)
		}
		if j != nil && !f.poison && j.Blamed > w.allowed() {
			r.breach("%s is to blame for %d crashes, and took no process down", f.id, j.Blamed)
		}
		if f.poison && int64(f.deaths) > w.d.Policy.MaxCrashes+2+w.excess() {
			r.breach("%s has taken %d processes down", f.id, f.deaths)
		}
	}
	for _, t := range w.d.Tenants {
		if most := w.d.Limits(t).MaxInFlight; t.OutN+t.RunN > most {
			r.breach("%d of %s are in flight, and %d may", t.OutN+t.RunN, t.Name, most)
		}
	}
}

// crashedTooOften: a job is dead, and nobody reported that. Only one that takes processes down may
// be.
func (w *world) crashedTooOften(f *fate, j *model.Job) {
	if !f.poison || j.Blamed < w.d.Policy.MaxCrashes {
		w.seen.breach("%s is dead after %d crashes, and took no process down", f.id, j.Crashes)
	}
}

// allowed is how many crashes a job may be charged with that took no process down: leases that
// ended for another cause, which nobody can tell from its own, and the first crash of each poison
// beside it.
func (w *world) allowed() int64 {
	return w.used(Crash) + w.used(Cut) + w.used(Slow) + w.used(Forget) + int64(w.s.poisons())
}

// excess is how many deaths of a process the queue may have forgotten.
func (w *world) excess() int64 { return w.used(Forget) }

func (w *world) used(f Fault) int64 { return int64(w.s.Faults[f] - w.left[f]) }

// placed checks that a job that has not ended is in exactly the book that its state says.
func (w *world) placed(j *model.Job) {
	t, name := w.d.Tenants[j.Tenant], j.Tenant+" "+j.ID
	in := func(b *model.Book, name string) (n int) {
		if _, ok := b.At(name); ok {
			n = 1
		}
		return n
	}
	fresh := 0
	for _, id := range t.Fresh {
		if id == j.ID {
			fresh++
		}
	}
	places := map[model.State]int{model.Unseen: fresh, model.Waiting: in(t.Back, j.ID), model.Backoff: in(t.Later, j.ID),
		model.Out: in(w.d.Out, name), model.Running: in(w.d.Running, name)}
	state, all := j.State, 0
	switch state {
	case model.Cancelling:
		state = model.Running
	case model.Delayed:
		state = model.Backoff
	}
	for _, n := range places {
		all += n
	}
	if all != 1 || places[state] != 1 {
		w.seen.breach("%s is in state %s, and in %d places: %v", j.ID, j.State, all, places)
	}
}
