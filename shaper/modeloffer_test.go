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

// stepOffer offers one to three jobs to a tenant in one call.
func (p *player) stepOffer() {
	var l []model.Offer
	for range 1 + p.r.IntN(3) {
		l = append(l, model.Offer{ID: pick(p.r, p.ids), Body: pick(p.r, []string{"A", "B"}),
			Delay:   pick(p.r, []time.Duration{0, 0, 0, 0, 50 * time.Millisecond, 3 * time.Second}),
			MaxWait: pick(p.r, []time.Duration{0, 0, 0, 0, 100 * time.Millisecond, 5 * time.Second})})
		if p.r.IntN(8) == 0 {
			l[len(l)-1].Delay, l[len(l)-1].NotBefore = 0, p.now+pick(p.r, []int64{-second, 0, 40 * milli})
		}
	}
	p.offerAll(p.tenant(), l...)
}

// offerAll offers jobs in one call, and returns what each was told.
func (p *player) offerAll(t *model.Tenant, l ...model.Offer) []model.Answer {
	for i, o := range l {
		p.offered++
		l[i].Call = fmt.Sprint(p.offered)
		if j := t.Jobs[o.ID]; j != nil && j.Ended() && j.State != model.Done && j.Body == o.Body {
			p.seen("offer anew")
		}
	}
	answers := p.model().Offer(t.Name, l...)
	refused, dropped := true, false
	for i, a := range answers {
		p.log("offer %+v to %s: %+v", l[i], t.Name, a)
		p.seen("offer " + string(a.Status))
		refused = refused && a.Status != model.Accepted
		// A job that was found to be known, and then made room for what followed it, would begin
		// anew in a repeated call. So would one whose end made room for those of others.
		j := t.Jobs[l[i].ID]
		known := a.Status == model.Accepted || a.Status == model.Duplicate || a.Status == model.Conflict
		dropped = dropped || known && j == nil || a.Status == model.Duplicate && j.Ended() && j.State != model.Done
	}
	before := ""
	if refused {
		before = p.dump()
	}
	steady := !refused && len(l) == 1 && p.m.Limits(t).OnFull != string(DropOldest)
	offer := func(q model.Queue) string {
		said := q.Offer(t.Name, l...)
		if a, first := said[0], answers[0]; steady && (a.Status != first.Status || a.Position != first.Position || a.State != first.State) {
			p.t.Errorf("%+v was offered again, and answered %v after %v", l[0], a, first)
		}
		return fmt.Sprintf("%+v", said)
	}
	first := fmt.Sprintf("%+v", answers)
	p.same("offer", offer(p.scripts()), first)
	if !dropped {
		p.again("offer", first, offer, false)
	}
	if refused && p.dump() != before {
		p.t.Errorf("a refusal left a trace:\n%s\nbecame\n%s", before, p.dump())
	}
	return answers
}

// After a restart a departure that Redis may have forgotten counts as one that happened, even
// before its tenant is next written: a full bucket whose tenant has as many jobs in flight as it
// may tells the same retry time as the model.
func TestModelTellsRetryAfterRestart(t *testing.T) {
	p := newPlayer(newWorld(t, redistest.Open(t)), 1, &sync.Map{}, "a")
	p.ids = []string{"j1", "j2", "j3", "j4"}
	p.begin(buckets.Rate{})
	p.setTenant("a", model.Policy{Rate: rate(100, time.Second), Depth: 1, Weight: 1, MaxInFlight: 1, MaxAttempts: 1, MaxThrottles: 1, OnFull: string(Reject)})
	p.beat("p1", 3, time.Hour)
	offer := func(id string) model.Answer { return p.offerAll(p.m.Tenant("a"), model.Offer{ID: id, Body: "A"})[0] }
	offer("j1")
	p.release(1, 1)
	p.enter(p.tickets[0], "p1.1")
	ended := p.ending(p.grants[0], model.EndOK, 0, "-")
	ended.Late = "0" // it started, and its run took no time
	p.report(ended)
	offer("j2")
	p.release(1, 1)
	p.pass(second)
	offer("j3")
	if a := offer("j4"); a.Status != model.Full || a.Retry != second {
		t.Errorf("before the restart %+v, want full, and a second until something may have left", a)
	}
	p.stepRestart()
	if a := offer("j4"); a.Status != model.Full || a.Retry >= second {
		t.Errorf("after the restart %+v, want full until the timeline lets another one leave", a)
	}
}
