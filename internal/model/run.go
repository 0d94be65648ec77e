package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Play is what comes to a downstream from outside: jobs, and orders.
type Play struct {
	From     int64 // when it begins
	Places   int   // how many jobs its workers run at once
	Arrivals []Arrival
	Orders   []Order
}

// Arrival is a job that somebody offers, and what becomes of it.
type Arrival struct {
	At     int64
	Tenant string
	Offer
	Runs  time.Duration // how long each start takes
	Ends  []Ending      // of its starts, in their order; those beyond the list end well
	After time.Duration // the backoff after an error, the pause after a throttled start
}

// Order changes what is in force: a pause, as in Downstream.Pause, or a tenant's policy.
type Order struct {
	At     int64
	Tenant string
	Pause  int64
	Policy *Policy // nil: it is a pause
}

// Start is one start of a job.
type Start struct {
	Tenant, ID string
	Attempt    int64
	Slot       int64
	At         int64 // when it began: at its slot, or at once if that had passed
	Ended      int64
	Became     string // as Ended.Became
}

// Record is what became of a play.
type Record struct {
	Answers []Answer // to the arrivals, in their order
	Starts  []Start  // by slot
	Until   int64    // when the last thing happened
}

// Run plays until nothing happens any more, beginning with what the queue already holds: those jobs
// end well, and at once. Its workers are as good as workers can be: a ticket is at the gate at
// once, a start happens at its slot, and a worker that ends a job asks for the next. A pause, even
// one that the downstream asked for, recalls those whose slots have not come.
func Run(q Queue, p Play) Record {
	r := runner{Queue: q, now: p.From, record: Record{Answers: make([]Answer, len(p.Arrivals))}, jobs: map[string]*Arrival{}}
	arrivals := make([]int, len(p.Arrivals))
	for i := range arrivals {
		arrivals[i] = i
	}
	slices.SortStableFunc(arrivals, func(a, b int) int { return cmp.Compare(p.Arrivals[a].At, p.Arrivals[b].At) })
	orders := slices.Clone(p.Orders)
	slices.SortStableFunc(orders, func(a, b Order) int { return cmp.Compare(a.At, b.At) })

	r.Set(r.now)
	r.Beat(pool, p.Places, ever, 0, nil)
	for {
		for len(arrivals) > 0 && p.Arrivals[arrivals[0]].At <= r.now {
			i := arrivals[0]
			r.record.Answers[i] = r.arrives(&p.Arrivals[i])
			arrivals = arrivals[1:]
		}
		for len(orders) > 0 && orders[0].At <= r.now {
			r.obey(orders[0])
			orders = orders[1:]
		}
		r.end()
		if r.now >= r.beaten+beat {
			r.beat(p.Places)
		}
		next := r.release()
		if len(arrivals) > 0 {
			next = min(next, p.Arrivals[arrivals[0]].At)
		}
		if len(orders) > 0 {
			next = min(next, orders[0].At)
		}
		for _, g := range r.running {
			next = min(next, g.Ended, max(r.beaten+beat, r.now+1))
		}
		if next >= Forever {
			break
		}
		r.now = max(r.now, next)
		r.Set(r.now)
	}
	slices.SortStableFunc(r.record.Starts, func(a, b Start) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Tenant, b.Tenant))
	})
	r.record.Until = r.now
	return r.record
}

const (
	pool = "run"
	ever = 10 * 365 * 24 * time.Hour // longer than a play
	beat = 2_000_000                 // µs after which a pool beats again
	most = 50                        // tickets of one call
	ttl  = 5 * time.Second           // of a ticket
)

type runner struct {
	Queue
	now     int64
	record  Record
	jobs    map[string]*Arrival // by "tenant/id"
	running []*running
	tokens  int
	beaten  int64
}

// running is a start that was granted; Ended says when it will.
type running struct {
	Start
	token string
}

func (r *runner) token() string {
	r.tokens++
	return fmt.Sprintf("%s.%d", pool, r.tokens)
}

func (r *runner) arrives(a *Arrival) Answer {
	said := r.Offer(a.Tenant, a.Offer)[0]
	if said.Status == Accepted {
		r.jobs[a.Tenant+"/"+a.ID] = a
	}
	return said
}

func (r *runner) obey(o Order) {
	if o.Policy != nil {
		r.SetTenant(o.Tenant, *o.Policy)
		return
	}
	if r.Pause(o.Tenant, o.Pause) > 0 {
		r.recall(o.Tenant)
	}
}

// recall: a tenant ("" = each) is paused, and those of its starts whose slots have not come ask for
// others.
func (r *runner) recall(tenant string) {
	held := r.running
	r.running = nil
	for _, g := range held {
		if g.At <= r.now || tenant != "" && tenant != g.Tenant {
			r.running = append(r.running, g)
		} else if again, _ := r.Again(g.Tenant, g.ID, g.token, r.token()); again != nil {
			r.starts(again)
		}
	}
}

func (r *runner) job(tenant, id string) *Arrival {
	if a := r.jobs[tenant+"/"+id]; a != nil {
		return a
	}
	return &Arrival{}
}

func (r *runner) starts(g *Grant) {
	at := max(g.Slot, r.now)
	r.running = append(r.running, &running{Start{Tenant: g.Tenant, ID: g.ID, Attempt: g.Attempt, Slot: g.Slot, At: at,
		Ended: at + r.job(g.Tenant, g.ID).Runs.Microseconds()}, g.Token})
}

// end reports what has ended, and starts what is next.
func (r *runner) end() {
	var paused []string
	for i := 0; i < len(r.running); i++ {
		g := r.running[i]
		if g.Ended > r.now {
			continue
		}
		r.running = slices.Delete(r.running, i, i+1)
		i--
		a, how := r.job(g.Tenant, g.ID), EndOK
		if n := int(g.Attempt); n <= len(a.Ends) {
			how = a.Ends[n-1]
		}
		said := r.Finish(Report{Tenant: g.Tenant, ID: g.ID, Token: g.token, Ending: how, Delay: a.After, Next: r.token(),
			Late: fmt.Sprint(g.At - g.Slot)})[0]
		g.Became = said.Became
		r.record.Starts = append(r.record.Starts, g.Start)
		if said.Next != nil {
			r.starts(said.Next)
		}
		switch how {
		case EndThrottled:
			paused = append(paused, g.Tenant)
		case EndThrottledAll:
			paused = append(paused, "")
		}
	}
	for _, tenant := range paused {
		r.recall(tenant)
	}
}

// beat keeps the leases of what runs.
func (r *runner) beat(places int) {
	var own []Held
	for _, g := range r.running {
		own = append(own, Held{g.Tenant, g.ID, g.token, g.At <= r.now})
	}
	r.Beat(pool, places, ever, 0, own)
	r.beaten = r.now
}

// release starts what may start now, and returns when to look again.
func (r *runner) release() (next int64) {
	for {
		tickets, wait, more := r.Release(most, ttl, 0)
		for _, k := range tickets {
			if g, _ := r.Enter(k, r.token()); g != nil {
				r.starts(g)
			}
		}
		switch {
		case more && len(tickets) > 0:
		case wait < 0:
			return Forever
		default:
			return r.now + max(wait, 1)
		}
	}
}
