package shaper

import (
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
)

// stepOffer offers one to three jobs to a tenant in one call.
func (p *player) stepOffer() {
	t := p.tenant()
	var l []Spec
	for range 1 + p.r.IntN(3) {
		l = append(l, Spec{Tenant: t.Name, ID: pick(p.r, p.ids), Type: "test", Payload: []byte{"AB"[p.r.IntN(2)]},
			Delay:   pick(p.r, []time.Duration{0, 0, 0, 0, 50 * time.Millisecond, 3 * time.Second}),
			MaxWait: pick(p.r, []time.Duration{0, 0, 0, 0, 100 * time.Millisecond, 5 * time.Second})})
	}
	p.offerAll(t, l)
}

// offerAll offers jobs in one call, and returns what each was told.
func (p *player) offerAll(t *model.Tenant, l []Spec) []model.Answer {
	args := []any{t.Name}
	var offers []model.Offer
	p.offered++
	for i, s := range l {
		a, err := p.client.offerArgs(&s)
		p.must(err)
		args = append(args, a...)
		offers = append(offers, model.Offer{ID: s.ID, Body: string(s.Payload), Call: fmt.Sprint(p.offered, ".", i), Delay: s.Delay, MaxWait: s.MaxWait})
		if j := t.Jobs[s.ID]; j != nil && j.Ended() && j.State != model.Done && j.Body == string(s.Payload) {
			p.seen("offer anew")
		}
	}
	answers := p.model().Offer(t.Name, offers...)
	refused, dropped := true, false
	for i, a := range answers {
		p.log("offer %s %s to %s, delay %v, max wait %v: %v", l[i].ID, l[i].Payload, t.Name, l[i].Delay, l[i].MaxWait, a)
		p.seen("offer " + string(a.Status))
		refused = refused && a.Status != model.Accepted
		// What was found to be known, and made room for what followed it, would begin anew in a repeated call.
		j := t.Jobs[l[i].ID]
		dropped = dropped || a.Status == model.Duplicate && j.Ended() && j.State != model.Done
	}
	before := ""
	if refused {
		before = p.dump()
	}
	predict := after(fmt.Sprint(answers), func() string { return fmt.Sprint(p.model().Offer(t.Name, offers...)) })
	offer := func() string {
		v, err := p.q.run(p.t.Context(), enqueueScript, "enqueue", args...)
		p.must(err)
		var got []model.Answer
		for r := replyOf(v); r.more(); {
			one := replyOf(r.next())
			a := model.Answer{Status: model.Status(one.str()), Position: int(one.int())}
			start, retry := one.int(), one.int()
			a.State = one.str()
			if (a.Status == model.Full || a.Status == model.Block) && retry < milli {
				p.t.Errorf("%s, and try again after %d µs", a.Status, retry)
			}
			if a.Status == model.Accepted && start != 0 && start < p.now { // 0 is not known
				p.t.Errorf("accepted to start %d µs ago", p.now-start)
			}
			got = append(got, a)
		}
		return fmt.Sprint(got)
	}
	if dropped {
		p.same("offer", offer(), predict())
	} else {
		p.repeat("offer", predict, offer, !refused && len(l) == 1 && p.m.Limits(t).OnFull != string(DropOldest))
	}
	if refused && p.dump() != before {
		p.t.Errorf("a refusal left a trace:\n%s\nbecame\n%s", before, p.dump())
	}
	return answers
}
