package explore

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
)

const (
	begin     int64 = 2_000_000_000_000_000 // where time begins, in µs
	ticketTTL       = 2 * time.Second
	poll      int64 = 1_000_000 // the longest sleep of a scheduler
	lost      int64 = 1_000_000 // the most that Redis forgets
	away      int64 = 8_000_000 // for how long Redis is away if it is: longer than a lease
	blink     int64 = 1         // the least that a restart of Redis takes, in µs
	soon      int64 = 1_000     // within which a pool beats that Redis does not know, in µs
	atOnce          = 50        // tickets of one call
)

// world is a state of everything: what Redis holds, what is on its way to it, who runs what, and
// what happened so far as far as the properties ask.
type world struct {
	s     *Scenario
	d     *model.Downstream
	saved *model.Downstream // what a Redis that forgets will know; nil = it will not forget
	now   int64
	down  int64 // Redis is away, and back at this instant; 0 = it is there
	late  bool  // the scheduler takes as long as it likes
	left  Faults

	tickets []ticket // in asynq's hands
	pools   []pool
	tries   []try
	names   int // pools and tokens so far
	seen    record
}

type ticket struct {
	model.Ticket
	slow bool
}

// pool is a process with workers.
type pool struct {
	name   string
	places int
	cut    bool
}

// phase is where a start is, for its worker.
type phase int8

const (
	entering  phase = iota // the answer of the gate was lost
	held                   // it has a slot
	asking                 // the answer to the call for another slot was lost
	running                // its handler runs
	reporting              // its handler has ended, or its worker handed it back
)

// try is one start, from the call to the gate until its end is recorded.
type try struct {
	pool       string
	phase      phase
	slow       bool
	ticket     model.Ticket
	tenant, id string
	token      string
	next       string // the token of the call that is to be repeated, for another slot or another job
	slot       int64
	least      int64 // the interval of its tenant when it got its slot
	attempt    int64
	ending     model.Ending
	began      bool
	cut        bool // its pool was cut off meanwhile, so it may have lost its lease
	lost       bool // its pool was told so, and has told its handler
	told       bool // its report was accepted, and the reply lost
}

// newWorld is the beginning: nothing was offered yet.
func newWorld(s *Scenario) *world {
	w := &world{s: s, now: begin, d: model.New(begin, s.Policy), left: s.Faults, seen: newRecord(s)}
	for _, t := range s.Tenants {
		w.d.SetTenant(t.Name, t.Policy)
	}
	for _, places := range s.Pools {
		w.opens(places)
	}
	w.d.Release(atOnce, ticketTTL, 0) // everybody is filed
	return w
}

func (w *world) clone() *world {
	c := *w
	c.d = w.d.Clone() // what is saved is never changed, only cloned again
	c.tickets, c.pools, c.tries = slices.Clone(w.tickets), slices.Clone(w.pools), slices.Clone(w.tries)
	c.seen = w.seen.clone()
	return &c
}

// queue is what calls go to.
func (w *world) queue() Queue {
	if w.s.Break != nil {
		return w.s.Break(w.d)
	}
	return w.d
}

func (w *world) name(of string) string {
	w.names++
	return fmt.Sprint(of, w.names)
}

// token returns a fresh token of a pool.
func (w *world) token(pool string) string { return w.name(pool + ".") }

// opens opens a pool, which says at once that it is there.
func (w *world) opens(places int) {
	p := pool{name: w.name("p"), places: places}
	w.pools = append(w.pools, p)
	if w.down == 0 {
		w.beat(&p)
	}
}

// beat is the beat of a pool: it extends the leases of what it owns.
func (w *world) beat(p *pool) {
	var own []model.Held
	var whose []*try
	for i := range w.tries {
		if t := &w.tries[i]; t.pool == p.name && t.phase != entering {
			own = append(own, model.Held{Tenant: t.tenant, ID: t.id, Token: t.token, Begun: t.began})
			whose = append(whose, t)
		}
	}
	for i, standing := range w.queue().Beat(p.name, p.places, w.d.Policy.Lease, 0, own) {
		whose[i].lost = standing == model.LeaseLost
	}
}

// beats has every pool beat that can.
func (w *world) beats() {
	for i := range w.pools {
		if !w.pools[i].cut {
			w.beat(&w.pools[i])
		}
	}
}

// release has the scheduler look for what may leave.
func (w *world) release() {
	tickets, _, _ := w.queue().Release(atOnce, ticketTTL, 0)
	for _, k := range tickets {
		w.tickets = append(w.tickets, ticket{Ticket: k})
	}
	w.late = false
}

func (w *world) pool(name string) *pool {
	for i := range w.pools {
		if w.pools[i].name == name {
			return &w.pools[i]
		}
	}
	return nil
}

// reaches reports whether a pool can make calls now.
func (w *world) reaches(name string) bool { return w.down == 0 && !w.pool(name).cut }

// free is how many more tickets a pool takes.
func (w *world) free(p *pool) int {
	n := p.places
	for _, t := range w.tries {
		if t.pool == p.name {
			n--
		}
	}
	return n
}

// jobName is the id of the nth job of a tenant.
func jobName(t *Tenant, nth int) string {
	if t.poisonous(nth) {
		return fmt.Sprint("poison", nth+1)
	}
	return fmt.Sprint("job", nth+1)
}

// paused reports whether a tenant's workers have been told to wait.
func (w *world) paused(tenant string) bool {
	return max(w.d.Until, w.d.Tenants[tenant].Until) > w.now
}
