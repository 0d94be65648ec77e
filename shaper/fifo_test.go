package shaper

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// TestFirstInFirstOutWhateverTheOrder: as long as no job fails or waits too long, no worker crashes
// and no ticket is lost, jobs of a tenant start in the order in which they were accepted. Tickets
// come to the gate in any order, doubled and stale, are given back, find their tenant paused or
// their slot far away; workers ask for more while tickets are out; rates and caps change meanwhile.
func TestFirstInFirstOutWhateverTheOrder(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	sequences := 25
	if testing.Short() {
		sequences = 10
	}
	must := []string{"gate other", "gate stale", "gate true paused", "gate true early", "another went back", "next that was out"}
	untilAllHappened(t, sequences, must, func(t *testing.T, seed uint64, happened *sync.Map, loud bool) {
		inOrder(t, newWorld(t, rdb), seed, happened, loud)
	})
}

func inOrder(t *testing.T, w *world, seed uint64, happened *sync.Map, loud bool) {
	p := newPlayer(w, seed, happened, []string{"a", "b"}[:1+seed%2]...)
	p.ids = []string{"none"}
	defer func() {
		if t.Failed() || loud {
			t.Logf("steps:\n%s", strings.Join(p.trace, "\n"))
		}
	}()
	fast := []buckets.Rate{rate(50, time.Second), rate(100, time.Second), rate(300, time.Second), rate(1000, time.Second)}
	last := map[string]int64{}
	p.order = func(j *model.Job) {
		if j.Since < last[j.Tenant] {
			p.t.Errorf("%s of %s started after one that was accepted later", j.ID, j.Tenant)
		}
		last[j.Tenant] = max(j.Since, last[j.Tenant])
	}
	policy := func(name string) {
		to := model.Policy{Rate: pick(p.r, fast), Depth: 100, MaxInFlight: 3 + p.r.Int64N(6), MaxAttempts: 5}
		if p.r.IntN(8) == 0 {
			to.Rate = rate(7, time.Second) // what was released for another rate is early now
		}
		p.setTenant(name, to)
	}
	common := buckets.Rate{}
	if p.r.IntN(3) == 0 {
		common = pick(p.r, fast)
	}
	p.begin(common)
	for _, name := range p.names {
		policy(name)
	}
	p.beat("p1", 5, time.Hour)
	var held []model.Ticket // that have not been to the gate
	offered := 0
	offer := func() {
		for range 1 + p.r.IntN(4) {
			offered++
			t := p.tenant()
			p.ids = append(p.ids, fmt.Sprint("j", 1000-offered)) // names whose order is not theirs
			if a := p.offerAll(t, model.Offer{ID: p.ids[offered], Body: "A"}); a[0].Status != model.Accepted {
				p.t.Errorf("%+v, want it accepted", a)
			}
			p.pass(1) // no two are accepted at the same instant
		}
	}
	release := func() {
		n := len(p.tickets)
		p.release(1+p.r.IntN(5), 1)
		held = append(held, p.tickets[n:]...)
	}
	use := func(how func(model.Ticket)) {
		if len(held) > 0 {
			i := p.r.IntN(len(held))
			k := held[i]
			if p.r.IntN(5) > 0 { // else it is used, and comes again
				held = append(held[:i:i], held[i+1:]...)
			}
			how(k)
		}
	}
	gate := func() { use(func(k model.Ticket) { p.enter(k, p.token()) }) }
	finish := func() {
		if g, ok := live(p, p.grants, p.owns); ok {
			p.report(p.ending(g, model.EndOK, 0, pick(p.r, []string{"-", p.tokenOf(g)})))
		}
	}
	steps := []func(){offer, offer, release, release, gate, gate, gate, gate, finish, finish, finish,
		func() { use(p.giveBack) },
		func() {
			if p.r.IntN(2) == 0 {
				p.pause(pick(p.r, append([]string{""}, p.names...)), pick(p.r, []int64{0, 0, 30 * milli}))
			}
		},
		func() {
			if p.r.IntN(3) == 0 {
				policy(p.tenant().Name)
			}
		},
	}
	for range 60 {
		pick(p.r, steps)()
		p.pass(pick(p.r, []int64{5, 5, milli, 5 * milli, 20 * milli}))
		if p.checkAfter(loud); t.Failed() {
			return
		}
	}
	for _, name := range append([]string{""}, p.names...) {
		p.pause(name, 0)
	}
	for i := 0; p.unfinished() > 0 && !t.Failed(); i++ {
		if i == 2000 {
			p.t.Errorf("%d jobs did not end", p.unfinished())
		}
		release()
		for len(held) > 0 {
			gate()
		}
		for _, g := range p.grants {
			if p.owns(g) {
				p.succeed(g)
			}
		}
		p.pass(20 * milli)
	}
	p.check()
}

// A worker that is given a job whose ticket is out frees the place that was kept for the ticket, so
// a scheduler that waits for a place wakes.
func TestChainingFreesThePlaceOfTheTicket(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.pool("p", 2)
	w.offers("a", 4)
	g := w.start()
	w.pass(second)
	if tickets, _, _ := w.release(5); len(tickets) != 1 {
		t.Fatalf("%d tickets, want one for the other place", len(tickets))
	}
	w.pass(second)
	sub := w.rdb.Subscribe(withTimeout(t), w.q.SignalChannel())
	defer sub.Close()
	_, err := sub.Receive(withTimeout(t))
	w.must(err)
	if _, next := w.finish(g, queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p")}); next == nil || next.ID != "a2" {
		t.Fatalf("next: %+v, want a2, which was out", next)
	}
	if msg, err := sub.ReceiveMessage(withTimeout(t)); err != nil || msg.Payload != "w" {
		t.Errorf("the scheduler heard %v (%v), want that it should wake", msg, err)
	}
	if tickets, _, _ := w.release(5); len(tickets) != 1 || tickets[0].ID != "a3" {
		t.Errorf("released %v, want a3", tickets)
	}
}

// A job that waited too long while its ticket was out is not chained either.
func TestChainingHeedsMaxWait(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.pool("p", 4)
	w.offers("a", 1)
	g := w.start()
	w.offer(Spec{Tenant: "a", ID: "hasty", MaxWait: 100 * time.Millisecond})
	w.pass(50 * milli)
	if tickets, _, _ := w.release(5); len(tickets) != 1 {
		t.Fatalf("%d tickets", len(tickets))
	}
	w.offer(Spec{Tenant: "a", ID: "patient"})
	w.pass(second)
	w.release(0) // its time has come
	if _, next := w.finish(g, queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p")}); next == nil || next.ID != "patient" {
		t.Errorf("next: %+v, want the one that waits patiently", next)
	}
	if s := w.job("a", "hasty").State; s != StateExpired {
		t.Errorf("the hasty one is %s, want expired", s)
	}
}

// A job whose state cannot be read while its ticket is out does not stop those behind it, and is set
// apart when its time is over; one without a body is forgotten.
func TestUnreadableOutDoesNotBlock(t *testing.T) {
	for _, chains := range []bool{false, true} {
		w := newWorld(t, redistest.Open(t))
		w.set("a", Policy{Rate: rate(1000, time.Second)})
		w.pool("p", 9)
		w.offers("a", 1)
		g := w.start()
		w.pass(second)
		for _, id := range []string{"state", "body", "good", "waits"} {
			w.offer(Spec{Tenant: "a", ID: id})
		}
		tickets, _, _ := w.release(3)
		if len(tickets) != 3 {
			t.Fatalf("%d tickets", len(tickets))
		}
		w.must(w.rdb.HSet(t.Context(), w.q.StateKey("a"), "state", "garbage").Err())
		w.must(w.rdb.HDel(t.Context(), w.q.JobsKey("a"), "body").Err())
		w.pass(second)
		if chains {
			_, g = w.finish(g, queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p")})
		} else {
			g, _ = w.enter(tickets[0], "p")
		}
		if g == nil || g.ID != "good" {
			t.Errorf("chains %v: %+v was granted, want the good one", chains, g)
		}
		w.pass(6 * second)
		if id := w.start().ID; id != "waits" {
			t.Errorf("then %s started, want waits", id)
		}
		w.apart("a", "state", "garbage")
		if n := w.rdb.ZCard(t.Context(), w.q.OutsKey("a")).Val(); n > 0 {
			t.Errorf("%d are out for ever", n)
		}
	}
}

// If all of a job vanishes while its ticket is out, nothing of it is left in the books.
func TestGoneWhileOut(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 9)
	w.offers("a", 1)
	if tickets, _, _ := w.release(1); len(tickets) != 1 {
		t.Fatalf("%d tickets", len(tickets))
	}
	w.must(w.rdb.Del(t.Context(), w.q.StateKey("a"), w.q.JobsKey("a")).Err())
	w.pass(6 * second)
	w.release(1)
	for _, key := range []string{w.q.OutsKey("a"), w.q.OutKey(), w.q.WaitKey("a")} {
		if n := w.rdb.Exists(t.Context(), key).Val(); n > 0 {
			t.Errorf("%s is left", key)
		}
	}
}

// A report that asks for more is given what another report of the same call made room for.
func TestBatchMakesRoom(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second), MaxInFlight: 2})
	w.pool("p", 9)
	w.offers("a", 3)
	first, second := w.start(), w.start()
	var args []any
	for i, g := range []*queue.Grant{first, second} {
		args = append(args, g.Tenant, g.ID, g.Token, string(queue.EndOK), 0, "", []string{"-", "p.next"}[i], "?")
	}
	w.pass(1_000_000)
	v, err := w.q.Run(t.Context(), queue.FinishScript, "finish jobs", args...)
	w.must(err)
	r := queue.ReplyOf(v)
	if became := queue.ReplyOf(r.Next()).Str(); became != "done" {
		t.Errorf("first: %s", became)
	}
	one := queue.ReplyOf(r.Next())
	if became, run := one.Str(), one.Str(); became != "done" || run != "run" {
		t.Errorf("second: %s %s, want it done, and a3 to run", became, run)
	}
}

// A report on a job whose body is gone is recorded, and no job is started that nobody would run.
func TestReportWithoutBody(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.pool("p", 9)
	w.offers("a", 2)
	g := w.start()
	w.must(w.rdb.HDel(t.Context(), w.q.JobsKey("a"), g.ID).Err())
	w.pass(second)
	became, next := w.finish(g, queue.Finish{Ending: queue.EndError, Delay: time.Millisecond, Next: queue.NewToken("p")})
	if became != "retry" || next == nil || next.ID != "a2" {
		t.Errorf("%s, next %+v; want a retry, and a2", became, next)
	}
}

// After the clock stepped back backoffs are brought nearer once, also for a tenant that a report
// only looked at.
func TestReportHealsOnce(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	for _, name := range []string{"a", "b"} {
		w.set(name, Policy{Rate: rate(1000, time.Second)})
	}
	w.pool("p", 9)
	w.offers("b", 1)
	w.finish(w.start(), queue.Finish{Ending: queue.EndError, Delay: 3 * time.Hour})
	w.offers("a", 1)
	g := w.start()
	w.must(w.rdb.ZAdd(t.Context(), w.q.DueKey(), redis.Z{Score: 0, Member: "b"}).Err()) // as release does after a step
	w.pass(-3600 * second)
	want := w.now + 3*3600*second
	w.must(w.admin.pause(t.Context(), "", "1000")) // so that nothing is done about b but to look at it
	if became, next := w.finish(g, queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p")}); became != "done" || next != nil {
		t.Errorf("%s, next %v", became, next)
	}
	w.pass(second)
	w.release(1)
	if at := int64(w.rdb.ZScore(t.Context(), w.q.LaterKey("b"), "b1").Val()); at > want || at < want-10*second {
		t.Errorf("the backoff ends %v from what it was, want it about there", time.Duration(at-want)*time.Microsecond)
	}
}
