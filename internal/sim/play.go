package sim

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
)

// Store is a queue whose Redis can restart.
type Store interface {
	model.Queue
	Restart() // Redis is another one, and knows all that it knew
}

// Forgetful is a Store that can lose what it learnt last.
type Forgetful interface {
	Store
	Save()   // what is known now survives
	Forget() // restarts with what was saved last
}

// start is where virtual time begins, in µs.
const start int64 = 2_000_000_000_000_000

// play is a run under way. All of it happens in one goroutine.
type play struct {
	Scenario
	store      Store
	r          *rand.Rand
	now        int64
	events     events
	n          int // events so far, which orders those of the same instant
	up         int64
	schedulers []*scheduler
	pools      []*pool
	pending    []model.Ticket // in asynq's hands
	names      int            // tokens, pools and jobs so far
	ending     bool           // nothing breaks any more
	forget     Forgetful      // is to forget the next grant
	seen       record
}

// Run plays a scenario to its end and returns what broke.
func Run(store Store, s Scenario) Findings {
	p := &play{Scenario: s, store: store, r: rand.New(rand.NewPCG(s.Seed, 2)), now: start, up: start}
	p.store.Set(p.now)
	p.store.SetDownstream(s.Policy)
	p.seen = newRecord(s)
	for i := range s.Tenants {
		t := &s.Tenants[i]
		p.store.SetTenant(t.Name, t.Policy)
		p.arrivals(t)
	}
	for range s.Schedulers {
		c := &scheduler{p: p}
		p.schedulers = append(p.schedulers, c)
		p.at(p.now, c.look)
	}
	for _, places := range s.Pools {
		p.opens(places)
	}
	p.breaks()
	until := int64(math.MaxInt64)
	p.after(s.For.Microseconds(), func() {
		p.ending, p.seen.calm = true, p.now
		until = p.now + p.seen.patience()
	})
	for len(p.events) > 0 && !(p.ending && p.seen.ended()) {
		e := heap.Pop(&p.events).(event)
		if p.now = e.at; p.now > until {
			break
		}
		p.store.Set(p.now)
		e.do()
	}
	return p.seen.judge(p)
}

// event is something that will happen.
type event struct {
	at int64
	n  int
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func (p *play) at(at int64, do func()) {
	p.n++
	heap.Push(&p.events, event{max(at, p.now), p.n, do})
}

func (p *play) after(d int64, do func()) { p.at(p.now+d, do) }

// name returns a name that nobody has.
func (p *play) name(of string) string {
	p.names++
	return fmt.Sprint(of, p.names)
}

// way is how long a message takes: now and then much longer than usual.
func (p *play) way() int64 {
	d := p.Distance.Microseconds()
	if d += p.r.Int64N(d/5 + 2); p.r.IntN(500) == 0 {
		d += p.r.Int64N(8_000)
	}
	return d
}

// process is something that can crash. What it waits for then never comes.
type process struct {
	dead bool
	trip time.Duration // its last call's way to Redis and back, in whole ms
}

// call has a process make a call and repeat it until it is answered; a call bears repeating. then
// runs with the answer, told when that call was sent. It is what a worker knows of an answer: it was
// given between then and now.
func call[T any](p *play, of *process, do func() T, then func(T, int64)) {
	if of.dead {
		return
	}
	sent := p.now
	again := func() { call(p, of, do, then) }
	p.after(p.way(), func() {
		if p.now < p.up { // Redis is away
			p.after(p.way()+100_000, again)
			return
		}
		answer := do()
		if !p.ending && p.r.Float64() < p.Faults.LostReply {
			p.after(1_000_000, again)
			return
		}
		p.after(p.way(), func() {
			if !of.dead {
				of.trip = (time.Duration(p.now-sent) * time.Microsecond).Truncate(time.Millisecond)
				then(answer, sent)
			}
		})
	})
}

// every does something now and then, a mean time apart, until nothing breaks any more.
func (p *play) every(mean time.Duration, do func()) {
	if mean == 0 {
		return
	}
	p.after(int64(p.r.ExpFloat64()*float64(mean.Microseconds())), func() {
		if !p.ending {
			do()
			p.every(mean, do)
		}
	})
}

// breaks lets things break.
func (p *play) breaks() {
	p.every(p.Faults.PoolCrash, func() {
		if len(p.pools) == 0 {
			return
		}
		p.crash(p.pools[p.r.IntN(len(p.pools))])
	})
	p.every(p.Faults.SchedulerCrash, func() {
		i := p.r.IntN(len(p.schedulers))
		p.schedulers[i].dead = true
		c := &scheduler{p: p}
		p.schedulers[i] = c
		p.after(p.r.Int64N(5_000_000), c.look)
	})
	p.every(p.Faults.Restart, func() {
		forgetful, can := p.store.(Forgetful)
		if !can || p.r.Float64() >= p.Faults.Forgets {
			p.restart(p.store.Restart)
			return
		}
		p.forget = forgetful
	})
}

// grants comes before a call that may grant a slot: where Redis is to forget something, that grant
// is among it.
func (p *play) grants() {
	forgetful := p.forget
	if forgetful == nil {
		return
	}
	p.forget = nil
	forgetful.Save()
	p.seen.saved()
	p.after(p.r.Int64N(1_000_000), func() {
		p.restart(forgetful.Forget)
		p.seen.forgot(p.now)
	})
}

// restart has Redis be away for a while, or hardly.
func (p *play) restart(do func()) {
	do()
	away := p.Faults.Away.Microseconds()
	if p.r.IntN(2) == 0 {
		away = min(away, 50_000)
	}
	p.up = max(p.up, p.now+p.r.Int64N(away+1))
	p.seen.cut(p.now, p.up)
}

// arrivals has a tenant offer its jobs.
func (p *play) arrivals(t *Tenant) {
	n := 0
	offer := func() {
		id := p.name("j")
		if n++; n <= t.Poison {
			p.seen.poison[id] = true
		}
		body := model.Offer{ID: id, Body: "A", Call: id}
		call(p, &process{}, func() model.Answer {
			said := p.store.Offer(t.Name, body)[0]
			if said.Status == model.Accepted {
				p.seen.accepted(t.Name, id, p.now)
			}
			return said
		}, func(model.Answer, int64) {})
		p.signal()
	}
	for range t.Backlog {
		offer()
	}
	if t.Load == 0 {
		return
	}
	mean := float64(t.Policy.Rate.Interval().Microseconds()) / t.Load
	var next func()
	next = func() {
		p.after(int64(p.r.ExpFloat64()*mean), func() {
			if !p.ending {
				offer()
				next()
			}
		})
	}
	next()
}
