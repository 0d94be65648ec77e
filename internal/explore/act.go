package explore

import (
	"slices"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
)

const (
	backoff  = time.Second
	throttle = 500 * time.Millisecond
	pause    = 500_000 // µs
)

// offers: a tenant offers its next job; with lost, twice.
func (w *world) offers(nth int, lost bool) {
	f := &w.seen.fates[nth]
	o := model.Offer{ID: f.id, Body: "A", Call: f.id}
	said := w.queue().Offer(f.tenant, o)[0]
	if lost {
		if again := w.queue().Offer(f.tenant, o)[0]; again.Status != said.Status {
			w.seen.breach("%s is %s, and when its offer is repeated %s", f.id, said.Status, again.Status)
		}
	}
	switch said.Status {
	case model.Accepted:
		f.accepted = true
	case model.Full:
		if t := w.d.Tenants[f.tenant]; t.Level() < w.d.Limits(t).Depth {
			w.seen.breach("%s is refused, and there is room", f.id)
		}
	default:
		w.seen.breach("%s is %s", f.id, said.Status)
	}
	if t := w.d.Tenants[f.tenant]; said.Status == model.Accepted && t.Level() > w.d.Limits(t).Depth {
		w.seen.breach("%s is accepted, and %d jobs wait", f.id, t.Level())
	}
}

// takes: a pool takes a ticket to the gate.
func (w *world) takes(i, p int, lost bool) {
	k := w.tickets[i]
	w.tickets = slices.Delete(w.tickets, i, i+1)
	name := w.pools[p].name
	w.tries = append(w.tries, try{pool: name, phase: entering, ticket: k.Ticket, token: w.token(name)})
	w.asks(len(w.tries)-1, lost)
}

// asks makes the call of a start that waits for the answer of the gate.
func (w *world) asks(i int, lost bool) {
	t := &w.tries[i]
	var g *model.Grant
	if t.phase == entering {
		g, _ = w.queue().Enter(t.ticket, t.token)
	} else {
		g, _ = w.queue().Again(t.tenant, t.id, t.token, t.next)
	}
	if g != nil {
		w.granted(g)
	}
	switch {
	case lost:
		t.slow = false
	case g == nil:
		w.leaves(i)
	default:
		w.holds(t, g)
	}
}

// another: a start that has missed its slot, or whose tenant is paused, asks for another slot.
func (w *world) another(i int, lost bool) {
	t := &w.tries[i]
	t.phase, t.next = asking, w.token(t.pool)
	w.asks(i, lost)
}

func (w *world) holds(t *try, g *model.Grant) {
	least := int64(0)
	if f := w.seen.fate(g.Tenant, g.ID); f != nil {
		least = f.least
	}
	*t = try{pool: t.pool, phase: held, tenant: g.Tenant, id: g.ID, token: g.Token, slot: g.Slot, attempt: g.Attempt,
		least: least, cut: t.cut}
}

// leaves: a worker has nothing to do with a start any more.
func (w *world) leaves(i int) { w.tries = slices.Delete(w.tries, i, i+1) }

// begins: a handler begins.
func (w *world) begins(i int) {
	t := &w.tries[i]
	w.started(t)
	t.phase, t.began, t.slow = running, true, false
}

// ends: a handler has ended, or its worker hands the start back; it reports so, as soon as it can.
func (w *world) ends(i int, how model.Ending, lost bool) {
	t := &w.tries[i]
	t.phase, t.ending, t.next = reporting, how, "-"
	if how != model.EndBack && how != model.EndThrottled {
		t.next = w.token(t.pool)
	}
	if w.reaches(t.pool) {
		w.reports(i, lost)
	}
}

// reports makes the call that says how a start ended; a worker that asks for more may get it.
func (w *world) reports(i int, lost bool) {
	t := &w.tries[i]
	r := model.Report{Tenant: t.tenant, ID: t.id, Token: t.token, Ending: t.ending, Next: t.next, Late: "0"}
	switch {
	case !t.began:
		r.Late = "-"
	case t.ending == model.EndError:
		r.Delay = backoff
	case t.ending == model.EndThrottled:
		r.Delay = throttle
	}
	repeated := t.told
	end := w.queue().Finish(r)[0]
	w.ended(t, end.Became)
	if end.Next != nil {
		w.granted(end.Next)
	}
	t.slow = false
	switch {
	case lost:
	case end.Next != nil:
		t.cut = t.cut && repeated
		w.holds(t, end.Next)
	default:
		w.leaves(i)
	}
}

// crashes: a pool dies, with all that it ran, and another one is opened.
func (w *world) crashes(p int) {
	name, places := w.pools[p].name, w.pools[p].places
	w.pools = slices.Delete(w.pools, p, p+1)
	w.tries = slices.DeleteFunc(w.tries, func(t try) bool { return t.pool == name })
	w.opens(places)
}

// dies: a poisonous job takes its process down.
func (w *world) dies(i int) {
	t := w.tries[i]
	w.seen.fate(t.tenant, t.id).deaths++
	w.crashes(slices.IndexFunc(w.pools, func(p pool) bool { return p.name == t.pool }))
}

// cuts: a pool is cut off.
func (w *world) cuts(p int) {
	w.pools[p].cut = true
	for i := range w.tries {
		if t := &w.tries[i]; t.pool == w.pools[p].name {
			t.cut = true
		}
	}
}

// heals: it is there again, and beats at once.
func (w *world) heals(p int) {
	w.pools[p].cut = false
	if w.down == 0 {
		w.beat(&w.pools[p])
	}
}

// comesBack: Redis is there again, and another one.
func (w *world) comesBack() {
	w.down = 0
	w.now += blink
	w.d.Set(w.now)
	w.queue().Restart()
}

// forgets: Redis is another one, and knows what was saved.
func (w *world) forgets() {
	w.d, w.saved = w.saved.Clone(), nil
	w.comesBack()
	w.forget()
}

func (w *world) cancels(nth int) {
	f := &w.seen.fates[nth]
	f.cancelled = true
	switch said := w.queue().Cancel(f.tenant, f.id); said {
	case string(model.Cancelled):
		f.ends(&w.seen, said)
	case "running":
	default:
		if f.end == "" && !w.seen.forgot {
			w.seen.breach("%s is to be cancelled, and the answer is %q", f.id, said)
		}
	}
}

// changes changes the rate of a tenant, or changes it back.
func (w *world) changes(nth int) {
	t := &w.s.Tenants[nth]
	rate := w.s.Other
	if w.d.Tenants[t.Name].Policy.Rate == rate {
		rate = t.Policy.Rate
	}
	w.queue().SetTenant(t.Name, model.Policy{Rate: rate})
}
