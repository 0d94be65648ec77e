package shaper

import (
	"fmt"
	"slices"
	"time"
)

func (p *player) stepRelease() { p.release(1+p.r.IntN(4), 1+p.r.IntN(2)) }

// release asks for tickets. Those of all calls but the last are lost.
func (p *player) release(limit, times int) {
	for i := range times {
		lost, crashed := p.m.lost(p.now)
		for name, n := range map[string]int{"lost ticket": lost, "crash": crashed, "spared lease": p.m.spared(p.now)} {
			if n > 0 {
				p.seen(name)
			}
		}
		free := p.m.free(p.now)
		v, err := p.q.run(p.t.Context(), releaseScript, "release", limit, micros(ticketTTL), p.r.IntN(2))
		p.must(err)
		r := replyOf(v)
		wait, more := r.int(), r.int() == 1
		n := 0
		for ; r.more(); n++ {
			k := Ticket{r.str(), r.str(), r.int()}
			p.log("released %v", k)
			t := p.m.tenants[k.Tenant]
			if !p.m.ripe(t, p.now) {
				p.t.Errorf("%v was released, and %s may not send one", k, t.name)
			}
			j, err := p.m.popped(t, k.ID, p.now)
			if err != nil {
				p.t.Error(err)
				return
			}
			if j.st, j.at, j.left = "o", p.now+mTicket, p.now; j.rel != k.Release {
				p.t.Errorf("%v is release number %d", k, j.rel)
			}
			t.out++
			if i == times-1 {
				p.tickets = append(p.tickets, k)
			}
		}
		if int64(n) > max(free, 0) || n > limit {
			p.t.Errorf("%d tickets, free %d, limit %d", n, free, limit)
		}
		p.observe()
		p.log("%d tickets, free %d, wait %d, more %v", n, free, wait, more)
		if n < limit && int64(n) < free && !more {
			p.idle(wait)
		}
	}
}

// observe takes over what picks may have done to buckets that they only looked into.
func (p *player) observe() {
	v := p.look()
	for _, name := range p.m.names {
		p.m.settle(p.m.tenants[name], v.wait[name], v.later[name], v.outs[name], p.now)
	}
}

// idle checks that nothing can leave now, and that the scheduler is not told to sleep past the next instant at which something can.
func (p *player) idle(wait int64) {
	for _, t := range p.m.tenants {
		if p.m.ripe(t, p.now) && p.m.releasable(t, p.now) {
			p.t.Errorf("%s has a job that may leave, and a place for it, and it was left", t.name)
		}
		if p.m.until > p.now || t.until > p.now || t.out+t.run >= t.cap || len(t.wait) == 0 {
			continue
		}
		out, _ := p.m.inFlight()
		at := t.tl.likely(t.rate, t.out, p.now, mEpoch, mGrace)
		if !p.m.rate.IsZero() {
			at = max(at, p.m.tl.likely(p.m.rate, out, p.now, mEpoch, mGrace))
		}
		if late := p.now + wait - (at - mLead); wait < 0 || late > 0 {
			p.t.Errorf("the scheduler sleeps %d µs, and the head of %s may leave %d µs earlier", wait, t.name, late)
		}
	}
}

func (p *player) stepGate() {
	if k, ok := live(p, p.tickets, p.valid); ok {
		p.enter(k, "-", p.token())
	}
}

func (p *player) stepAgain() {
	if g, ok := live(p, p.grants, p.owns); ok {
		p.enter(g.Ticket, g.Token, p.token())
	}
}

// stepReplay makes a call to the gate again, whatever has happened since: its answer was late.
func (p *player) stepReplay() {
	if c, ok := live(p, p.calls, func(c call) bool { return p.m.tenants[c.k.Tenant].owned(c.tok) != nil }); ok {
		p.enter(c.k, "-", c.tok)
	}
}

// call is one that came to the gate with a ticket.
type call struct {
	k   Ticket
	tok string
}

// enter comes to the gate with a ticket, or for another slot.
func (p *player) enter(k Ticket, old, tok string) {
	ticket := old == "-"
	if ticket {
		p.calls = append(p.calls, call{k, tok})
	} else {
		tok = poolOf(old) + tok[2:] // a pool asks for its own jobs only
	}
	t := p.m.tenants[k.Tenant]
	j, replay := t.jobs[k.ID], false
	if ticket {
		if j = t.owned(tok); j != nil {
			replay = true
		} else if l := t.outs(); len(l) > 0 {
			j = l[0]
		}
	}
	want, slot := "gone", int64(0)
	switch {
	case j == nil:
	case replay:
		want, slot = "", j.slot
	case !ticket && j.st == "c" && j.tok == old:
		p.m.logged["f"]++
		t.left(j)
		j.calledOff()
		t.end(j, "cancelled")
	case !ticket && (j.st != "r" || j.tok != old):
	case ticket && t.overdue(j, p.now):
		t.inherit(k, j)
		t.left(j)
		t.end(j, "expired")
		want = "expired"
	default:
		slot = p.m.slot(t, p.now)
		want = ""
		if t.until > p.now || p.m.until > p.now {
			want = TicketPaused
		} else if slot-p.now > hold {
			want = TicketEarly
		}
		switch {
		case want == "" && ticket:
			t.inherit(k, j)
			t.left(j)
			p.m.enter(t, j, slot, p.now, tok)
		case want == "":
			t.run-- // and enters again
			p.m.enter(t, j, slot, p.now, tok)
		case ticket:
			if l := t.outs(); l[len(l)-1].id != k.ID {
				p.seen("another went back")
			}
			t.recede(k)
		default:
			p.m.logged["f"]++
			t.left(j)
			j.calledOff()
			t.toFront(j)
		}
	}
	ask := func() string {
		g, answer, err := p.gate.ask(p.t.Context(), k, old, tok)
		p.must(err)
		if g != nil {
			if j == nil || g.ID != j.id {
				p.t.Errorf("%s was granted, want %+v", g.ID, j)
				return answer
			}
			p.granted(g, slot)
		}
		return answer
	}
	var got string
	if again := ticket && want != "" && want != "gone"; again {
		got = ask()
	} else {
		got = p.repeat(ask, want == "")
	}
	p.log("gate %v %s for %s: %q, slot %d", k, old, tok, got, slot-t0)
	p.seen(fmt.Sprint("gate ", ticket, " ", want))
	switch {
	case replay && j.id != k.ID:
		p.seen("receipt")
	case ticket && want == "" && j.id != k.ID:
		p.seen("gate other")
	case ticket && want == "" && j.rel != k.Release:
		p.seen("gate stale")
	}
	if got != want {
		p.t.Errorf("gate: %q, want %q", got, want)
	}
	if ticket && want != "" && want != "gone" && p.r.IntN(4) == 0 { // the reply was lost: it is a ticket once more
		p.enter(k, old, tok)
	}
}

func (p *player) granted(g *Grant, slot int64) {
	t := p.m.tenants[g.Tenant]
	if g.Slot.UnixMicro() != slot || g.Wait != time.Duration(slot-p.now)*time.Microsecond {
		p.t.Errorf("slot of %s: %d, wait %v; want %d", g.ID, g.Slot.UnixMicro()-t0, g.Wait, slot-t0)
	}
	j := t.jobs[g.ID]
	if int64(g.Attempt) != j.att || int64(g.Charged) != j.att-j.fg || int64(g.MaxAttempts) != t.attempts {
		p.t.Errorf("attempt %d, %d of %d charged of %s; want %d, %d of %d", g.Attempt, g.Charged, g.MaxAttempts, g.ID, j.att, j.att-j.fg, t.attempts)
	}
	if !slices.ContainsFunc(p.grants, func(o *Grant) bool { return o.Token == g.Token && o.ID == g.ID && o.Tenant == g.Tenant }) {
		p.grants = append(p.grants, g)
		if p.order != nil && j.att == 1 {
			p.order(t, j)
		}
	}
}

func (p *player) stepGiveBack() {
	k, ok := live(p, p.tickets, p.valid)
	if !ok {
		return
	}
	t := p.m.tenants[k.Tenant]
	for range 1 + p.r.IntN(2) { // repeated, it is another one
		want := min(1, len(t.outs()))
		t.recede(k)
		got, err := p.q.run(p.t.Context(), givebackScript, "give back", k.Tenant, k.ID, k.Release)
		p.must(err)
		p.log("give back %v: %v", k, got)
		if got != int64(want) {
			p.t.Errorf("give back: %v, want %d", got, want)
		}
	}
}

func (p *player) stepBeat() {
	p.beat(fmt.Sprint("p", 1+p.r.IntN(2)), 1+p.r.IntN(4)*p.r.IntN(2), pick(p.r, []time.Duration{time.Minute, time.Minute, 3 * time.Second}))
}

// beat tells of a pool, and extends the leases of some of the last grants, whoever owns them.
func (p *player) beat(pool string, places int, ttl time.Duration) {
	p.m.pools[pool] = &mPool{int64(places), p.now + ttl.Microseconds()}
	var own []Held
	for _, g := range p.grants[max(0, len(p.grants)-3):] {
		own = append(own, Held{g, p.r.IntN(2) == 0})
	}
	var want []Standing
	for _, g := range own {
		s := Lost
		if j := p.m.tenants[g.Tenant].jobs[g.ID]; j != nil && j.tok == g.Token && (j.st == "r" || j.st == "c") {
			s, j.at = Owned, max(p.now, j.slot)+mLease
			if j.st == "c" {
				s = Cancelled
			}
			if g.Begun && j.given {
				p.seen("begun by a beat")
				p.m.tenants[g.Tenant].began(j)
			}
		}
		want = append(want, s)
	}
	p.log("beat of %s, %d places, %d jobs: %v", pool, places, len(own), want)
	got := p.repeat(func() string {
		s, err := p.gate.Beat(p.t.Context(), pool, places, ttl, own)
		p.must(err)
		return fmt.Sprint(s)
	}, true)
	if got != fmt.Sprint(want) {
		p.t.Errorf("beat: %s, want %v", got, want)
	}
}
