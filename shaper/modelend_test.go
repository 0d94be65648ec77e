package shaper

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
)

func (p *player) stepFinish() {
	g, ok := live(p, p.grants, p.owns)
	if !ok {
		return
	}
	next := "-"
	if p.r.IntN(4) > 0 {
		next = p.tokenOf(g)
	}
	p.report(p.ending(g, pick(p.r, []model.Ending{model.EndOK, model.EndOK, model.EndError, model.EndError, model.EndUncharged, model.EndDead, model.EndThrottled,
		model.EndThrottledAll, model.EndBack}), pick(p.r, []time.Duration{time.Millisecond, time.Second, 3 * time.Second}), next))
}

// stepBatch makes several reports in one call, some of them late or twice.
func (p *player) stepBatch() {
	var l []model.Report
	for range 2 + p.r.IntN(4) {
		g, ok := live(p, p.grants, p.owns)
		if !ok {
			return
		}
		e := p.ending(g, pick(p.r, []model.Ending{model.EndOK, model.EndOK, model.EndError, model.EndUncharged, model.EndDead, model.EndThrottled,
			model.EndThrottledAll, model.EndBack}), pick(p.r, []time.Duration{time.Millisecond, time.Second}), "-")
		if p.r.IntN(3) > 0 {
			e.Next = p.tokenOf(g)
		}
		l = append(l, e)
		if p.r.IntN(6) == 0 {
			l = append(l, e)
		}
	}
	tenants := map[string]int{}
	for _, e := range l {
		if p.held(e) != nil {
			tenants[e.Tenant]++
		}
	}
	for _, n := range tenants {
		if n > 1 {
			p.seen("batch of a tenant")
		}
	}
	if len(tenants) > 1 {
		p.seen("batch of tenants")
	}
	p.report(l...)
}

// ending is a report, with what a worker may say of the start.
func (p *player) ending(g *model.Grant, how model.Ending, delay time.Duration, next string) model.Report {
	return model.Report{Tenant: g.Tenant, ID: g.ID, Token: g.Token, Ending: how, Delay: delay, Next: next,
		Late: pick(p.r, []string{"?", "1000", "-"})}
}

// succeed reports a good end, and asks for no more.
func (p *player) succeed(g *model.Grant) { p.report(p.ending(g, model.EndOK, 0, "-")) }

// held is the job of a report that comes from its owner, or nil.
func (p *player) held(e model.Report) *model.Job {
	if j := p.m.Job(e.Tenant, e.ID); j.Owned(e.Token) {
		return j
	}
	return nil
}

// report makes reports in one call, and notes what they bring about.
func (p *player) report(l ...model.Report) {
	p.t.Helper()
	for _, e := range l {
		if j := p.held(e); j != nil && j.Granted && e.Late == "-" && (e.Ending == model.EndBack || e.Ending == model.EndDead) {
			p.seen("called off")
		}
		if j := p.held(e); j != nil && j.State != model.Cancelling && e.Ending == model.EndUncharged {
			p.seen("uncharged")
		}
		p.log("%+v", e)
	}
	alone, out := len(l) == 1 && p.held(l[0]) != nil, slices.Clone(p.m.Out.Lines())
	p.repeat("finish", func(q model.Queue) string {
		var said []string
		for i, e := range q.Finish(l...) {
			words := fmt.Sprint(e.Became, ", ", e.InARow, " in a row")
			p.seen("finish " + e.Became)
			if e.Became == "dead" && e.InARow > 0 {
				p.seen("dead by throttles")
			}
			if e.Next != nil {
				words += ", next " + p.granted(e.Next, "")
				p.seen("next")
				if slices.ContainsFunc(out, func(l model.Line) bool { return l.Name == e.Next.Tenant+" "+e.Next.ID }) {
					p.seen("next that was out")
				}
			} else if alone {
				p.satisfied(l[i])
			}
			said = append(said, words)
		}
		return strings.Join(said, "\n")
	}, false)
}

// satisfied checks that a worker that asked for more and was given nothing could not have been
// given anything.
func (p *player) satisfied(e model.Report) {
	p.t.Helper()
	chains := e.Next != "-" && (e.Ending == model.EndOK || e.Ending == model.EndError || e.Ending == model.EndUncharged || e.Ending == model.EndDead)
	if most := p.m.Policy.MaxInFlight; !chains || most > 0 && int64(p.m.Out.Len()+p.m.Running.Len()) >= most {
		return
	}
	p.byTheBook()
	for _, t := range p.m.Tenants {
		if p.ripe(t) && p.releasable(t) {
			p.t.Errorf("a worker asked for more, and was not given what %s has", t.Name)
		}
	}
}

func (p *player) stepCancel() {
	t := p.tenant()
	id, _ := live(p, p.ids, func(id string) bool { return t.Jobs[id] != nil })
	p.repeat("cancel "+id, func(q model.Queue) string {
		state := q.Cancel(t.Name, id)
		p.seen("cancel " + state)
		return state
	}, true)
}

func (p *player) stepDead() {
	verb, ids := pick(p.r, []string{"requeue", "forget"}), []string{}
	dead := func(t *model.Tenant, id string) bool { return t.Jobs[id] != nil && t.Jobs[id].State == model.Dead }
	name, _ := live(p, p.names, func(name string) bool {
		return slices.ContainsFunc(p.ids, func(id string) bool { return dead(p.m.Tenant(name), id) })
	})
	t := p.m.Tenant(name)
	for range 1 + p.r.IntN(3) {
		id, _ := live(p, p.ids, func(id string) bool { return dead(t, id) })
		ids = append(ids, id)
	}
	p.repeat(fmt.Sprint(verb, t.Name, ids), func(q model.Queue) string {
		n, full := 0, false
		if verb == "forget" {
			n = q.ForgetDead(t.Name, ids...)
		} else {
			n, full = q.RequeueDead(t.Name, ids...)
		}
		switch {
		case full:
			p.seen("dead " + verb + " 1")
		case n > 0:
			p.seen("dead " + verb + " 0")
		}
		return fmt.Sprint(n, full)
	}, false)
}

func (p *player) stepPause() {
	name := pick(p.r, append([]string{""}, p.names...))
	p.pause(name, pick(p.r, []int64{0, 0, -1, 50 * milli, 5 * second}))
}

func (p *player) pause(name string, us int64) {
	p.repeat("pause "+name, func(q model.Queue) string { return fmt.Sprint(q.Pause(name, us)) }, true)
}

func (p *player) stepPurge() {
	t := p.tenant()
	p.repeat("purge "+t.Name, func(q model.Queue) string { return fmt.Sprint(q.Purge(t.Name)) }, false)
}
