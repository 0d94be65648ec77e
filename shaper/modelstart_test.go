package shaper

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
)

func (p *player) stepRelease() {
	if p.r.IntN(8) == 0 {
		p.trip = p.distance()
	}
	p.release(1+p.r.IntN(4), 1+p.r.IntN(2))
}

// release asks for tickets. Those of all calls but the last are lost.
func (p *player) release(limit, times int) {
	for i := range times {
		lost, crashed, suspected := p.m.Counts["lost_tickets"], p.m.Counts["crashed"], p.m.Counts["suspected"]
		var tickets []model.Ticket
		var wait int64
		var more bool
		reach := p.m.Reach
		p.both(fmt.Sprint("release ", limit, ", ", p.trip, " away"), func(q model.Queue) string {
			tickets, wait, more = q.Release(limit, ticketTTL, p.trip)
			return fmt.Sprint(tickets, wait, more)
		})
		for name, happened := range map[string]bool{"longer lead": p.m.Reach > reach, "shorter lead": p.m.Reach < reach, "lost ticket": p.m.Counts["lost_tickets"] > lost, "crash": p.m.Counts["crashed"] > crashed, "suspected": p.m.Counts["suspected"] > suspected,
			"blamed": p.m.Counts["crashed"]-crashed > p.m.Counts["suspected"]-suspected, "set aside": p.setAside(),
			"spared lease": p.m.Running.Len() > 0 && p.m.Running.Lines()[0].At <= p.now} {
			if happened {
				p.seen(name)
			}
		}
		for _, k := range tickets {
			p.left[k.Tenant+" "+k.ID] = p.now
			if i == times-1 {
				p.tickets = append(p.tickets, k)
			}
		}
		if len(tickets) < limit && p.m.Free() > 0 && !more {
			p.idle(wait)
		}
	}
}

// setAside reports whether a suspect found no room in this instant.
func (p *player) setAside() bool {
	for _, t := range p.m.Tenants {
		for _, j := range t.Jobs {
			if j.State == model.Backoff && j.Suspect > 0 && j.At == p.now+second {
				return true
			}
		}
	}
	return false
}

// idle checks that nothing can leave now, and that the scheduler is not told to sleep beyond the
// next instant at which something can.
func (p *player) idle(wait int64) {
	p.byTheBook()
	for _, t := range p.m.Tenants {
		if p.ripe(t) && p.releasable(t) {
			p.t.Errorf("%s has a job that may leave and a place for it, but it was not released", t.Name)
		}
		if p.m.Until > p.now || t.Until > p.now || p.full(t) || len(t.Waiting()) == 0 {
			continue
		}
		_, at := p.likely(t)
		if late := p.now + wait - (at - p.lead()); wait < 0 || late > 0 {
			p.t.Errorf("the scheduler sleeps %d µs, and the head of %s may leave %d µs earlier", wait, t.Name, late)
		}
	}
}

// ripe reports whether a tenant's head may leave now, by the book.
func (p *player) ripe(t *model.Tenant) bool {
	_, at := p.likely(t)
	return t.Until <= p.now && p.m.Until <= p.now && !p.full(t) && at <= p.now+p.lead()
}

// releasable reports whether a tenant has a job that may start.
func (p *player) releasable(t *model.Tenant) bool {
	ids := t.Waiting()
	for _, l := range t.Later.Lines() {
		if l.At <= p.now {
			ids = append(ids, l.Name)
		}
	}
	return slices.ContainsFunc(ids, func(id string) bool { return !p.m.Overdue(t, t.Jobs[id]) })
}

func (p *player) stepGate() {
	if k, ok := live(p, p.tickets, p.valid); ok {
		p.enter(k, p.token())
	}
}

// enter comes to the gate with a ticket.
func (p *player) enter(k model.Ticket, tok string) {
	p.calls = append(p.calls, call{k, tok})
	t := p.m.Tenants[k.Tenant]
	replay, outs := t.Owned(tok) != nil, slices.Clone(t.Outs.Lines())
	var g *model.Grant
	var why string
	enter := func(q model.Queue) string {
		g, why = q.Enter(k, tok)
		return p.granted(g, why)
	}
	first := p.both(fmt.Sprintf("gate %v for %s", k, tok), enter)
	if why == "" || why == model.Gone { // else a repeated call is another one
		p.again("gate", first, enter, true)
	}
	p.seen("gate true " + why)
	switch {
	case replay && g.ID != k.ID:
		p.seen("receipt")
	case replay:
	case g != nil && g.ID != k.ID:
		p.seen("gate other")
	case g != nil && t.Jobs[g.ID].Releases != k.Release:
		p.seen("gate stale")
	case (why == model.Paused || why == model.Early) && outs[len(outs)-1].Name != k.ID:
		p.seen("another went back")
	}
	if why != "" && why != model.Gone && p.r.IntN(4) == 0 { // the reply was lost: its ticket comes again
		p.enter(k, tok)
	}
}

// stepAgain asks for another slot.
func (p *player) stepAgain() {
	if g, ok := live(p, p.grants, p.owns); ok {
		token := p.tokenOf(g)
		p.repeat(fmt.Sprintf("another slot for %+v", *g), func(q model.Queue) string {
			another, why := q.Again(g.Tenant, g.ID, g.Token, token)
			p.seen("gate false " + why)
			return p.granted(another, why)
		}, false)
	}
}

// stepReplay makes a call to the gate again, whatever has happened since: its answer was late.
func (p *player) stepReplay() {
	if c, ok := live(p, p.calls, func(c call) bool { return p.m.Tenants[c.k.Tenant].Owned(c.tok) != nil }); ok {
		p.enter(c.k, c.tok)
	}
}

// call is one that came to the gate with a ticket.
type call struct {
	k   model.Ticket
	tok string
}

// granted records a grant, and returns it in words.
func (p *player) granted(g *model.Grant, why string) string {
	if g == nil {
		return "no: " + why
	}
	if !slices.ContainsFunc(p.grants, func(o *model.Grant) bool { return o.Token == g.Token && o.ID == g.ID && o.Tenant == g.Tenant }) {
		p.grants = append(p.grants, g)
		if p.order != nil && g.Attempt == 1 {
			p.order(p.m.Job(g.Tenant, g.ID))
		}
	}
	return fmt.Sprintf("%+v", *g)
}

func (p *player) stepGiveBack() {
	if k, ok := live(p, p.tickets, p.valid); ok {
		for range 1 + p.r.IntN(2) { // a repeated call is another one
			p.giveBack(k)
		}
	}
}

func (p *player) giveBack(k model.Ticket) {
	p.both(fmt.Sprint("give back ", k), func(q model.Queue) string { return fmt.Sprint(q.GiveBack(k)) })
}

func (p *player) stepBeat() {
	p.beat(fmt.Sprint("p", 1+p.r.IntN(2)), 1+p.r.IntN(4)*p.r.IntN(2), pick(p.r, []time.Duration{time.Minute, time.Minute, 3 * time.Second}))
}

// distance is a round trip to Redis, mostly next to none.
func (p *player) distance() time.Duration {
	return pick(p.r, []time.Duration{0, 0, 0, 7 * time.Millisecond, 50 * time.Millisecond, time.Second})
}

// beat reports a pool, and extends the leases of some of the last grants, whoever owns them.
func (p *player) beat(pool string, places int, ttl time.Duration) {
	var own []model.Held
	for _, g := range p.grants[max(0, len(p.grants)-3):] {
		own = append(own, model.Held{Tenant: g.Tenant, ID: g.ID, Token: g.Token, Begun: p.r.IntN(2) == 0})
	}
	started := p.m.Counts["started"]
	trip := p.distance()
	p.repeat(fmt.Sprintf("%d places of %s, %v away, for %v, %+v", places, pool, trip, ttl, own), func(q model.Queue) string { return fmt.Sprint(q.Beat(pool, places, ttl, trip, own)) }, true)
	if p.m.Counts["started"] > started {
		p.seen("begun by a beat")
	}
}
