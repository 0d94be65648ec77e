package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
)

// scheduler looks for what may leave, and hands tickets on.
type scheduler struct {
	process
	p      *play
	asking bool
	woken  bool
	wakes  int64 // when it looks next, if nobody wakes it
}

type released struct {
	tickets []model.Ticket
	wait    int64
	more    bool
}

const ticketTTL = 5 * time.Second

func (c *scheduler) look() {
	if c.dead || c.asking {
		c.woken = true
		return
	}
	c.asking, c.woken = true, false
	call(c.p, &c.process, func() (r released) {
		r.tickets, r.wait, r.more = c.p.store.Release(50, ticketTTL, c.trip)
		return r
	}, func(r released, _ int64) {
		c.asking = false
		for _, k := range r.tickets {
			c.p.enqueue(k)
		}
		wait := c.p.Poll.Microseconds()
		if r.wait >= 0 {
			wait = min(wait, r.wait)
		}
		if r.more || c.woken {
			wait = 0
		}
		at := c.p.now + wait
		c.wakes = at
		c.p.at(at, func() {
			if c.wakes == at {
				c.look()
			}
		})
	})
}

// signal wakes the schedulers: something changed.
func (p *play) signal() {
	for _, c := range p.schedulers {
		p.after(2*p.way(), func() { c.wakes = 0; c.look() })
	}
}

// enqueue gives a ticket to asynq, which gives it to a free worker.
func (p *play) enqueue(k model.Ticket) {
	if !p.ending && p.r.Float64() < p.Faults.LostTicket {
		return
	}
	p.after(p.way(), func() {
		p.pending = append(p.pending, k)
		p.seen.tickets = max(p.seen.tickets, len(p.pending))
		p.dequeue()
	})
}

func (p *play) dequeue() {
	for len(p.pending) > 0 {
		var free *pool
		from := p.r.IntN(max(1, len(p.pools)))
		for i := range p.pools {
			if q := p.pools[(from+i)%len(p.pools)]; q.busy < q.places {
				free = q
				break
			}
		}
		if free == nil {
			return
		}
		k := p.pending[0]
		p.pending = p.pending[1:]
		free.busy++
		p.after(2*p.way(), func() { free.enter(k) })
	}
}

// pool is a process with workers.
type pool struct {
	process
	p      *play
	name   string
	places int
	busy   int
	owns   map[string]*run // by token
}

// run is a start, from its grant until its end is recorded.
type run struct {
	grant *model.Grant
	begun bool
}

func (p *play) opens(places int) {
	q := &pool{p: p, name: p.name("p"), places: places, owns: map[string]*run{}}
	p.pools = append(p.pools, q)
	q.beat()
}

// crash ends a process. Another one takes its place.
func (p *play) crash(q *pool) {
	q.dead = true
	p.pools = slices.DeleteFunc(p.pools, func(o *pool) bool { return o == q })
	p.after(p.r.Int64N(5_000_000), func() { p.opens(q.places) })
	for _, s := range q.owns {
		if s.begun {
			p.seen.crashed(s.grant)
		}
	}
}

func (q *pool) token() string { return q.p.name(q.name + ".") }

func (q *pool) lease() time.Duration {
	if l := q.p.Policy.Lease; l > 0 {
		return l
	}
	return 15 * time.Second
}

// beat says that the pool is alive, and does so again.
func (q *pool) beat() {
	if q.dead {
		return
	}
	call(q.p, &q.process, func() bool {
		var own []model.Held
		for _, token := range slices.Sorted(maps.Keys(q.owns)) {
			s := q.owns[token]
			own = append(own, model.Held{Tenant: s.grant.Tenant, ID: s.grant.ID, Token: token, Begun: s.begun})
		}
		q.p.store.Beat(q.name, q.places, q.lease(), q.trip, own)
		return true
	}, func(bool, int64) {
		q.p.signal()
		q.p.dequeue()
		q.p.after(q.lease().Microseconds()/3, q.beat)
	})
}

type entered struct {
	grant *model.Grant
	why   string
}

// enter asks for a slot on a ticket.
func (q *pool) enter(k model.Ticket) {
	token := q.token()
	call(q.p, &q.process, func() (e entered) {
		q.p.grants()
		e.grant, e.why = q.p.store.Enter(k, token)
		q.p.seen.granted(e.grant, q.p.now)
		return e
	}, func(e entered, sent int64) { q.hold(e.grant, sent, 0) })
}

// hold waits for the slot of a start. It has surely come when as much time has passed since the
// answer as the slot lay ahead of it; if by then too much may have passed, another one is asked for.
func (q *pool) hold(g *model.Grant, sent int64, missed int) {
	if g == nil {
		q.idle()
		return
	}
	s := &run{grant: g}
	q.owns[g.Token] = s
	at, tau := q.p.now+g.Ahead, int64(20_000)
	q.p.at(at, func() {
		switch late := q.p.now - (sent + g.Ahead); {
		case q.dead:
		case late <= tau:
			q.begin(s, late)
		case missed < 5:
			q.p.seen.missed++
			token := q.token()
			call(q.p, &q.process, func() (e entered) {
				e.grant, e.why = q.p.store.Again(g.Tenant, g.ID, g.Token, token)
				q.p.seen.granted(e.grant, q.p.now)
				return e
			}, func(e entered, sent int64) {
				delete(q.owns, g.Token)
				q.hold(e.grant, sent, missed+1)
			})
		default:
			q.end(s, model.Report{Ending: model.EndBack, Late: "-"})
		}
	})
}

// begin runs a handler.
func (q *pool) begin(s *run, late int64) {
	s.begun = true
	t := q.p.seen.tenants[s.grant.Tenant]
	q.p.seen.started(s.grant, q.p.now)
	q.p.after(q.p.r.Int64N(t.Runs.Microseconds()+1), func() {
		if q.dead {
			return
		}
		if q.p.seen.poison[s.grant.ID] {
			q.p.crash(q)
			return
		}
		r := model.Report{Ending: model.EndOK, Late: fmt.Sprint(late), Next: q.token()}
		if q.p.r.Float64() < t.Fails {
			r.Ending, r.Delay = model.EndError, time.Second
		}
		q.end(s, r)
	})
}

// end reports how a start ended, and goes on with the next one if there is one.
func (q *pool) end(s *run, r model.Report) {
	r.Tenant, r.ID, r.Token = s.grant.Tenant, s.grant.ID, s.grant.Token
	if r.Next == "" {
		r.Next = "-"
	}
	call(q.p, &q.process, func() model.Ended {
		q.p.grants()
		end := q.p.store.Finish(r)[0]
		q.p.seen.finished(s.grant, end, q.p.now)
		q.p.seen.granted(end.Next, q.p.now)
		return end
	}, func(end model.Ended, sent int64) {
		delete(q.owns, s.grant.Token)
		q.p.signal()
		q.hold(end.Next, sent, 0)
	})
}

// idle frees a worker's place.
func (q *pool) idle() {
	q.busy--
	q.p.dequeue()
}
