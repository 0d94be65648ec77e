package shaper

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
)

func (p *player) stepRelease() { p.release(1+p.r.IntN(4), 1+p.r.IntN(2)) }

// release asks for tickets. Those of all calls but the last are lost.
func (p *player) release(limit, times int) {
	for i := range times {
		lost, crashed := p.m.Counts["lost_tickets"], p.m.Counts["crashed"]
		want, wait, more := p.model().Release(limit, ticketTTL)
		for name, happened := range map[string]bool{"lost ticket": p.m.Counts["lost_tickets"] > lost, "crash": p.m.Counts["crashed"] > crashed,
			"spared lease": p.m.Running.Len() > 0 && p.m.Running.Lines()[0].At <= p.now} {
			if happened {
				p.seen(name)
			}
		}
		v, err := p.q.run(p.t.Context(), releaseScript, "release", limit, micros(ticketTTL), p.r.IntN(2))
		p.must(err)
		r := replyOf(v)
		gotWait, gotMore := r.int(), r.int() == 1
		var got []model.Ticket
		for r.more() {
			got = append(got, model.Ticket{Tenant: r.str(), ID: r.str(), Release: r.int()})
		}
		p.log("released %v, wait %d, more %v", got, gotWait, gotMore)
		p.same("release", fmt.Sprint(got, gotWait, gotMore), fmt.Sprint(want, wait, more))
		for _, k := range want {
			p.left[k.Tenant+" "+k.ID] = p.now
			if i == times-1 {
				p.tickets = append(p.tickets, Ticket(k))
			}
		}
		if len(got) < limit && p.m.Free() > 0 && !gotMore {
			p.idle(gotWait)
		}
	}
}

// idle checks that nothing can leave now, and that the scheduler is not told to sleep past the next instant at which something can.
func (p *player) idle(wait int64) {
	p.byTheBook()
	for _, t := range p.m.Tenants {
		if p.ripe(t) && p.releasable(t) {
			p.t.Errorf("%s has a job that may leave, and a place for it, and it was left", t.Name)
		}
		if p.m.Until > p.now || t.Until > p.now || p.full(t) || len(t.Waiting()) == 0 {
			continue
		}
		_, at := p.likely(t)
		if late := p.now + wait - (at - mLead); wait < 0 || late > 0 {
			p.t.Errorf("the scheduler sleeps %d µs, and the head of %s may leave %d µs earlier", wait, t.Name, late)
		}
	}
}

// ripe tells whether a tenant's head may leave now, by the book.
func (p *player) ripe(t *model.Tenant) bool {
	_, at := p.likely(t)
	return t.Until <= p.now && p.m.Until <= p.now && !p.full(t) && at <= p.now+mLead
}

// releasable tells whether a tenant has a job that may start.
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

func (p *player) stepAgain() {
	if g, ok := live(p, p.grants, p.owns); ok {
		token := poolOf(g.Token) + p.token()[2:] // a pool asks for its own jobs only
		p.log("another slot for %s of %s, %s for %s", g.ID, g.Tenant, token, g.Token)
		why := ""
		p.repeat("again", func() string {
			g, answer := p.model().Again(g.Tenant, g.ID, g.Token, token)
			why = answer
			return p.told(g, answer)
		}, func() string {
			g, answer, err := p.gate.Again(p.t.Context(), g, token)
			p.must(err)
			return p.granted(g, answer)
		}, false)
		p.seen("gate false " + why)
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
	k   Ticket
	tok string
}

// enter comes to the gate with a ticket.
func (p *player) enter(k Ticket, tok string) {
	p.calls = append(p.calls, call{k, tok})
	t := p.m.Tenants[k.Tenant]
	replay := t.Owned(tok) != nil
	outs := slices.Clone(t.Outs.Lines())
	var g *model.Grant
	var why string
	ask := func() string {
		g, answer, err := p.gate.Enter(p.t.Context(), k, tok)
		p.must(err)
		return p.granted(g, answer)
	}
	predict := func() string { g, why = p.model().Enter(model.Ticket(k), tok); return p.told(g, why) }
	// A ticket that was answered without a grant is, repeated, another one.
	want := predict()
	if why == "" || why == TicketVoid {
		p.repeat("gate", after(want, predict), ask, true)
	} else {
		p.same("gate", ask(), want)
	}
	p.log("gate %v for %s: %s", k, tok, want)
	p.seen("gate true " + why)
	switch {
	case replay && g.ID != k.ID:
		p.seen("receipt")
	case replay:
	case g != nil && g.ID != k.ID:
		p.seen("gate other")
	case g != nil && t.Jobs[g.ID].Releases != k.Release:
		p.seen("gate stale")
	case (why == TicketPaused || why == TicketEarly) && outs[len(outs)-1].Name != k.ID:
		p.seen("another went back")
	}
	if why != "" && why != TicketVoid && p.r.IntN(4) == 0 { // the reply was lost: it is a ticket once more
		p.enter(k, tok)
	}
}

// told is an answer of the gate in words.
func (p *player) told(g *model.Grant, why string) string {
	if g == nil {
		return "no: " + why
	}
	return fmt.Sprintf("%+v", *g)
}

// granted is the same for an answer of the scripts, and takes a grant down.
func (p *player) granted(g *Grant, why string) string {
	if g == nil {
		return p.told(nil, why)
	}
	if !slices.ContainsFunc(p.grants, func(o *Grant) bool { return o.Token == g.Token && o.ID == g.ID && o.Tenant == g.Tenant }) {
		p.grants = append(p.grants, g)
		if j := p.m.Job(g.Tenant, g.ID); p.order != nil && j != nil && g.Attempt == 1 {
			p.order(j)
		}
	}
	return p.told(&model.Grant{Tenant: g.Tenant, ID: g.ID, Token: g.Token, Slot: g.Slot.UnixMicro(), Wait: g.Wait.Microseconds(),
		Attempt: int64(g.Attempt), Charged: int64(g.Charged)}, "")
}

func (p *player) stepGiveBack() {
	if k, ok := live(p, p.tickets, p.valid); ok {
		for range 1 + p.r.IntN(2) { // repeated, it is another one
			p.giveBack(k)
		}
	}
}

func (p *player) giveBack(k Ticket) {
	want := 0
	if p.model().GiveBack(model.Ticket(k)) {
		want = 1
	}
	got, err := p.q.run(p.t.Context(), givebackScript, "give back", k.Tenant, k.ID, k.Release)
	p.must(err)
	p.log("give back %v: %v", k, got)
	p.same("give back", fmt.Sprint(got), fmt.Sprint(want))
}

func (p *player) stepBeat() {
	p.beat(fmt.Sprint("p", 1+p.r.IntN(2)), 1+p.r.IntN(4)*p.r.IntN(2), pick(p.r, []time.Duration{time.Minute, time.Minute, 3 * time.Second}))
}

// beat tells of a pool, and extends the leases of some of the last grants, whoever owns them.
func (p *player) beat(pool string, places int, ttl time.Duration) {
	var own []Held
	var held []model.Held
	for _, g := range p.grants[max(0, len(p.grants)-3):] {
		begun := p.r.IntN(2) == 0
		own = append(own, Held{g, begun})
		held = append(held, model.Held{Tenant: g.Tenant, ID: g.ID, Token: g.Token, Begun: begun})
	}
	p.log("beat of %s, %d places for %v: %+v", pool, places, ttl, held)
	started := p.m.Counts["started"]
	p.repeat("beat", func() string { return fmt.Sprint(p.model().Beat(pool, places, ttl, held)) }, func() string {
		s, err := p.gate.Beat(p.t.Context(), pool, places, ttl, own)
		p.must(err)
		return fmt.Sprint(s)
	}, true)
	if p.m.Counts["started"] > started {
		p.seen("begun by a beat")
	}
}
