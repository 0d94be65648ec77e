package shaper

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// newCredited returns a player whose tenant "a" has so many jobs that may all leave at once, and
// workers for all of them.
func newCredited(t *testing.T, jobs int) *player {
	p := newPlayer(newWorld(t, redistest.Open(t)), 1, &sync.Map{}, "a")
	p.begin(buckets.Rate{})
	p.setTenant("a", model.Policy{Rate: rate(10_000_000, time.Second), Depth: 10_000, Weight: 1, MaxInFlight: 100_000, MaxAttempts: 3,
		MaxThrottles: 3, OnFull: string(Reject)})
	p.m.Set(p.now)
	p.both("beat", func(q model.Queue) string { return fmt.Sprint(q.Beat("p1", 100_000, time.Hour, 0, nil)) })
	for i := range jobs {
		p.offerAll(p.m.Tenant("a"), model.Offer{ID: fmt.Sprint("j", i), Body: "A"})
	}
	return p
}

// releases releases until there is nothing to release now, and returns how many tickets went out
// and how long the scheduler then sleeps.
func (p *player) releases() (n int, wait int64) {
	for more := true; more; {
		var tickets []model.Ticket
		p.both("release", func(q model.Queue) string {
			tickets, wait, more = q.Release(releaseLimit, ticketTTL, 0)
			return fmt.Sprint(tickets, wait, more)
		})
		for _, k := range tickets {
			p.left[k.Tenant+" "+k.ID] = p.now
		}
		p.tickets = append(p.tickets, tickets...)
		n += len(tickets)
	}
	return n, wait
}

// come brings the next n tickets to the gate.
func (p *player) come(n int) {
	for _, k := range p.tickets[:n] {
		p.enter(k, p.token())
	}
	p.tickets = p.tickets[n:]
}

// No more tickets are out than came to the gate lately, twice, and a floor in any case; so a gate
// that takes none has a floor of them out, however often one looks, and one more from time to time;
// and one that takes them gets more and more. The model predicts it all.
func TestTicketsOutFollowTheGate(t *testing.T) {
	p := newCredited(t, 900)
	const spanUS, floor = int64(ticketTTL/time.Microsecond) / 4, 2 * releaseLimit
	step := func(what string, want int) {
		t.Helper()
		n, wait := p.releases()
		if n != want {
			t.Errorf("%s: %d tickets went out, want %d", what, n, want)
		}
		if wait < 0 || wait > spanUS/10 {
			t.Errorf("%s: the scheduler sleeps %d µs, though some may soon come", what, wait)
		}
		if p.checkAfter(false); t.Failed() {
			t.FailNow()
		}
	}
	step("at first", floor)
	step("none came", 0)
	p.come(60)
	step("60 came", 2*60-40)
	p.pass(spanUS / 2) // half of those fade
	step("none came for half a span, so one may try", 1)
	step("none came, and one tried", 0)
	p.come(100)
	step("100 came, and the 60 count half", 2*(100+30)-21)
	p.pass(2 * spanUS)
	step("none came for two spans, so one may try", 1)

	p.pass(int64(ticketTTL / time.Microsecond)) // all are lost, and the scripts bring a few back in a call
	n, more := 0, true
	for more {
		var tickets []model.Ticket
		tickets, _, more = p.scripts().Release(releaseLimit, ticketTTL, 0)
		n += len(tickets)
	}
	if n != floor {
		t.Errorf("when all were lost %d went out, want %d", n, floor)
	}
}
