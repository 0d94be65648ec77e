package shaper

import (
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
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
		// What was found to be known, and made room for what followed it, would begin anew in a
		// repeated call.
		j := t.Jobs[l[i].ID]
		dropped = dropped || a.Status == model.Duplicate && j.Ended() && j.State != model.Done
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
