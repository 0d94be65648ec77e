package shaper

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
)

// ending is one report of how a start ended.
type ending struct {
	g       *Grant
	outcome Ending
	delay   time.Duration
	next    string
	began   Began
}

func (e ending) report() model.Report {
	return model.Report{Tenant: e.g.Tenant, ID: e.g.ID, Token: e.g.Token, Ending: model.Ending(e.outcome), Delay: e.delay, Next: e.next,
		Late: e.began.field()}
}

func (p *player) stepFinish() {
	g, ok := live(p, p.grants, p.owns)
	if !ok {
		return
	}
	next := "-"
	if p.r.IntN(2) == 0 {
		next = poolOf(g.Token) + p.token()[2:]
	}
	p.finish(g, pick(p.r, []Ending{EndOK, EndOK, EndError, EndError, EndDead, EndThrottled, EndThrottledAll, EndBack}),
		pick(p.r, []time.Duration{time.Millisecond, time.Second, 3 * time.Second}), next)
}

// began is what a worker says of a start that it reports.
func (p *player) began() Began {
	return pick(p.r, []Began{{}, BeganAfter(time.Millisecond), NeverBegan})
}

// finish reports how a start ended, and may ask for the next job.
func (p *player) finish(g *Grant, outcome Ending, delay time.Duration, next string) {
	e := ending{g, outcome, delay, next, p.began()}
	p.report([]ending{e}, func() []string {
		end, err := p.gate.Finish(p.t.Context(), g, Finish{Ending: outcome, Delay: delay, Text: "said\nso", Next: next, Began: e.began})
		p.must(err)
		return []string{p.ended(end.Became, end.InARow, end.Next)}
	})
}

// stepBatch makes several reports in one call, also late ones and the same twice.
func (p *player) stepBatch() {
	var l []ending
	for range 2 + p.r.IntN(4) {
		g, ok := live(p, p.grants, p.owns)
		if !ok {
			return
		}
		e := ending{g, pick(p.r, []Ending{EndOK, EndOK, EndError, EndDead, EndThrottled, EndThrottledAll, EndBack}),
			pick(p.r, []time.Duration{time.Millisecond, time.Second}), "-", p.began()}
		if p.r.IntN(3) > 0 {
			e.next = poolOf(g.Token) + p.token()[2:]
		}
		l = append(l, e)
		if p.r.IntN(6) == 0 {
			l = append(l, e)
		}
	}
	var args []any
	tenants := map[string]int{}
	for _, e := range l {
		args = append(args, e.g.Tenant, e.g.ID, e.g.Token, string(e.outcome), micros(e.delay), "said\nso", e.next, e.began.field())
		if p.owns(e.g) {
			tenants[e.g.Tenant]++
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
	p.report(l, func() (out []string) {
		v, err := p.q.run(p.t.Context(), finishScript, "finish jobs", args...)
		p.must(err)
		r := replyOf(v)
		for _, e := range l {
			one := replyOf(r.next())
			became, row := one.str(), 0
			var n *Grant
			for one.more() {
				switch one.str() {
				case "throttled":
					row = int(one.int())
				case "run":
					n, err = granted(one, e.next)
					p.must(err)
				}
			}
			out = append(out, p.ended(became, row, n))
		}
		if r.more() {
			p.t.Errorf("more answers than the %d reports", len(l))
		}
		return out
	})
}

// ended is the answer to a report in words.
func (p *player) ended(became string, row int, next *Grant) string {
	if next == nil {
		return fmt.Sprint(became, " ", row)
	}
	return fmt.Sprint(became, " ", row, " ", p.granted(next, ""))
}

// report has the model and the scripts take reports down, in one call, and notes what they bring about.
func (p *player) report(l []ending, send func() []string) {
	p.t.Helper()
	var reports []model.Report
	for _, e := range l {
		reports = append(reports, e.report())
		if j := p.m.Job(e.g.Tenant, e.g.ID); p.owns(e.g) && j.Granted && e.began.Never && (e.outcome == EndBack || e.outcome == EndDead) {
			p.seen("called off")
		}
		p.log("finish %s %s (%s) %s, delay %v, next %s, began %s", e.g.Tenant, e.g.ID, e.g.Token, e.outcome, e.delay, e.next, e.began.field())
	}
	out, owned := slices.Clone(p.m.Out.Lines()), len(l) == 1 && p.owns(l[0].g)
	predict := func() string {
		var said []string
		for i, e := range p.model().Finish(reports...) {
			line := fmt.Sprint(e.Became, " ", e.InARow)
			if e.Next != nil {
				line += " " + p.told(e.Next, "")
			}
			said = append(said, line)
			p.seen("finish " + e.Became)
			if e.Became == "dead" && e.InARow > 0 {
				p.seen("dead by throttles")
			}
			if e.Next == nil {
				if owned {
					p.satisfied(l[i])
				}
				continue
			}
			p.seen("next")
			if slices.ContainsFunc(out, func(l model.Line) bool { return l.Name == e.Next.Tenant+" "+e.Next.ID }) {
				p.seen("next that was out")
			}
		}
		return strings.Join(said, "\n")
	}
	p.repeat("finish", predict, func() string { return strings.Join(send(), "\n") }, false)
}

// satisfied checks that a worker that asked for more, and was given nothing, could not have been.
func (p *player) satisfied(e ending) {
	p.t.Helper()
	chains := e.next != "-" && (e.outcome == EndOK || e.outcome == EndError || e.outcome == EndDead)
	if most := p.m.Policy.MaxInFlight; !chains || most > 0 && int64(p.m.Out.Len()+p.m.Running.Len()) >= most {
		return
	}
	for _, t := range p.m.Tenants {
		if p.ripe(t) && p.releasable(t) {
			p.t.Errorf("a worker asked for more, and was not given what %s has", t.Name)
		}
	}
}

func (p *player) stepCancel() {
	t, id := p.tenant(), pick(p.r, p.ids)
	p.log("cancel %s %s", t.Name, id)
	p.repeat("cancel", func() string {
		want := p.model().Cancel(t.Name, id)
		p.seen("cancel " + want)
		return want
	}, func() string {
		v, err := p.q.run(p.t.Context(), cancelScript, "cancel", t.Name, id)
		p.must(err)
		return fmt.Sprint(v)
	}, true)
}

func (p *player) stepDead() {
	t, verb := p.tenant(), pick(p.r, []string{"requeue", "forget"})
	args, ids := []any{t.Name, verb}, []string{}
	for range 1 + p.r.IntN(3) {
		id, _ := live(p, p.ids, func(id string) bool { return t.Jobs[id] != nil && t.Jobs[id].State == model.Dead })
		args, ids = append(args, id), append(ids, id)
	}
	p.log("dead %v", args)
	p.repeat("dead", func() string {
		n, stopped := 0, 0
		if verb == "forget" {
			n = p.model().ForgetDead(t.Name, ids...)
		} else if done, full := p.model().RequeueDead(t.Name, ids...); full {
			n, stopped = done, 1
		} else {
			n = done
		}
		if n > 0 || stopped > 0 {
			p.seen(fmt.Sprint("dead ", verb, " ", stopped))
		}
		return fmt.Sprint([]int{n, stopped})
	}, func() string {
		v, err := p.q.run(p.t.Context(), deadScript, "dead", args...)
		p.must(err)
		return fmt.Sprint(v)
	}, false)
}

func (p *player) stepPause() {
	name := pick(p.r, append([]string{""}, p.names...))
	p.pause(name, pick(p.r, []int64{0, 0, -1, 50 * milli, 5 * second}))
}

func (p *player) pause(name string, us int64) {
	p.log("pause %q for %d", name, us)
	p.repeat("pause", func() string { p.model().Pause(name, us); return "" },
		func() string { p.must(p.admin.pause(p.t.Context(), name, fmt.Sprint(us))); return "" }, true)
}

func (p *player) stepPurge() {
	t := p.tenant()
	p.log("purge %s", t.Name)
	p.repeat("purge", func() string { return fmt.Sprint(p.model().Purge(t.Name)) }, func() string {
		v, err := p.q.run(p.t.Context(), purgeScript, "purge", t.Name)
		p.must(err)
		return fmt.Sprint(v)
	}, false)
}
