package shaper

import (
	"fmt"
	"slices"
	"time"
)

func (p *player) stepFinish() {
	g, ok := live(p, p.grants, p.owns)
	if !ok {
		return
	}
	next := "-"
	if p.r.IntN(2) == 0 {
		next = poolOf(g.Token) + p.token()[2:]
	}
	p.finish(g, pick(p.r, []Ending{EndOK, EndOK, EndError, EndError, EndUncharged, EndDead, EndThrottled, EndThrottledAll, EndBack}),
		pick(p.r, []time.Duration{time.Millisecond, time.Second, 3 * time.Second}), next)
}

// ending is one report of how a start ended.
type ending struct {
	g       *Grant
	outcome Ending
	delay   time.Duration
	next    string
	began   Began
}

// began is what a worker says of a start that it reports.
func (p *player) began() Began {
	return pick(p.r, []Began{{}, BeganAfter(time.Millisecond), NeverBegan})
}

// stands is what a report is told that comes too late or once more; "" if it is the first of the owner.
func (p *player) stands(g *Grant) string {
	j := p.m.tenants[g.Tenant].jobs[g.ID]
	switch {
	case j == nil || j.tok != g.Token:
		return "stale"
	case j.ended():
		return j.st
	case j.st == "x":
		return "dead"
	case j.st == "z":
		return "retry"
	case j.st != "r" && j.st != "c":
		return "back"
	}
	return ""
}

// take takes down one report and its answer: what it was told that the job became, and the next job. sure tells that nothing
// else happened in the call, so that a next job must be given if one may start.
func (p *player) take(e ending, became string, n *Grant, sure bool) {
	t := p.m.tenants[e.g.Tenant]
	j := t.jobs[e.g.ID]
	want := p.stands(e.g)
	if want != "" {
		if n != nil && p.m.tenants[n.Tenant].owned(e.next) == nil {
			p.t.Errorf("a report that was made before was given %s of %s, which its token does not own", n.ID, n.Tenant)
		}
	} else {
		cancelled := j.st == "c"
		p.m.logged["f"]++
		t.left(j)
		unstarted := e.began.Never && (e.outcome == EndBack || e.outcome == EndDead)
		switch {
		case !unstarted:
			t.began(j)
		case j.given:
			p.seen("called off")
			fallthrough
		default:
			j.calledOff()
		}
		j.st = "-" // nowhere, until the next one is picked
		// Only these ask for more; in the others the job itself is what should run next.
		chains := e.next != "-" && (e.outcome == EndOK || e.outcome == EndError || e.outcome == EndUncharged || e.outcome == EndDead)
		out, run := p.m.inFlight()
		room, waits := p.m.cap == 0 || out+run < p.m.cap, ""
		for _, name := range p.m.names {
			if o := p.m.tenants[name]; sure && chains && room && p.m.ripe(o, p.now) && p.m.releasable(o, p.now) {
				waits = name
			}
		}
		if !sure {
			p.observe()
		}
		p.next(n, chains && room, waits, e.next)
		want = p.became(t, j, e, cancelled, unstarted)
	}
	p.seen("finish " + want)
	if became != want {
		p.t.Errorf("finish of %s of %s: %q, want %q", e.g.ID, e.g.Tenant, became, want)
	}
}

// finish reports how a start ended, and may ask for the next job.
func (p *player) finish(g *Grant, outcome Ending, delay time.Duration, next string) {
	e := ending{g, outcome, delay, next, p.began()}
	first := true
	got := p.repeat(func() string {
		end, err := p.gate.Finish(p.t.Context(), g, Finish{Ending: outcome, Delay: delay, Text: "said\nso", Next: next, Began: e.began})
		p.must(err)
		became, n := end.Became, end.Next
		if first {
			first = false
			if throttled := outcome == EndThrottled || outcome == EndThrottledAll; throttled && p.stands(g) == "" && end.InARow != int(p.m.tenants[g.Tenant].row)+1 {
				p.t.Errorf("%d throttled in a row, want %d", end.InARow, p.m.tenants[g.Tenant].row+1)
			}
			p.take(e, became, n, true)
			p.observe()
		}
		if n == nil {
			return became
		}
		return fmt.Sprint(became, " ", n.Tenant, n.ID)
	}, true)
	p.log("finish %s %s (%s) %s, delay %v, next %s: %s", g.Tenant, g.ID, g.Token, outcome, delay, next, got)
}

// stepBatch makes several reports in one call, also late ones and the same twice.
func (p *player) stepBatch() {
	var l []ending
	for range 2 + p.r.IntN(4) {
		g, ok := live(p, p.grants, p.owns)
		if !ok {
			return
		}
		e := ending{g, pick(p.r, []Ending{EndOK, EndOK, EndError, EndUncharged, EndDead, EndThrottled, EndThrottledAll, EndBack}),
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
	for _, e := range l {
		args = append(args, e.g.Tenant, e.g.ID, e.g.Token, string(e.outcome), micros(e.delay), "said\nso", e.next, e.began.field())
	}
	report := func(each func(i int, became string, n *Grant)) {
		v, err := p.q.run(p.t.Context(), finishScript, "finish jobs", args...)
		p.must(err)
		r := replyOf(v)
		for i, e := range l {
			one := replyOf(r.next())
			became := one.str()
			var n *Grant
			if one.more() && one.str() == "run" {
				n, err = granted(one, e.next)
				p.must(err)
			}
			each(i, became, n)
		}
		if r.more() {
			p.t.Errorf("more answers than the %d reports", len(l))
		}
	}
	tenants := map[string]int{}
	report(func(i int, became string, n *Grant) {
		e := l[i]
		id := ""
		if n != nil {
			id = n.Tenant + " " + n.ID
		}
		p.log("batch %d of %d: finish %s %s (%s) %s, delay %v, next %s: %s %s", i+1, len(l), e.g.Tenant, e.g.ID, e.g.Token, e.outcome, e.delay, e.next, became, id)
		if p.stands(e.g) == "" {
			tenants[e.g.Tenant]++
		}
		p.take(e, became, n, false)
	})
	p.observe()
	for _, n := range tenants {
		if n > 1 {
			p.seen("batch of a tenant")
		}
	}
	if len(tenants) > 1 {
		p.seen("batch of tenants")
	}
	before := p.look().String()
	for range p.r.IntN(3) {
		report(func(i int, became string, n *Grant) {
			if want := p.stands(l[i].g); became != want {
				p.t.Errorf("report %d of a batch was repeated, and answered %q, want %q", i+1, became, want)
			}
			if n != nil && p.m.tenants[n.Tenant].owned(l[i].next) == nil {
				p.t.Errorf("report %d of a batch was repeated, and was given %s", i+1, n.ID)
			}
		})
	}
	if after := p.look().String(); after != before {
		p.t.Errorf("a batch was repeated, and changed\n%s\nto\n%s", before, after)
	}
}

// next takes down the job that a finish was given to run next, if it may.
func (p *player) next(n *Grant, may bool, waits, tok string) {
	if n == nil {
		if waits != "" {
			p.t.Errorf("a worker asked for more, and was not given what %s has", waits)
		}
		return
	}
	t := p.m.tenants[n.Tenant]
	if !may || !p.m.ripe(t, p.now) {
		p.t.Errorf("a worker was given %s of %s, and it may not start one", n.ID, n.Tenant)
	}
	p.seen("next")
	j, out, err := p.m.taken(t, n.ID, p.now)
	if err != nil {
		p.t.Error(err)
		return
	}
	if out {
		p.seen("next that was out")
	}
	slot := p.m.slot(t, p.now)
	p.m.enter(t, j, slot, p.now, tok)
	p.granted(n, slot)
}

// became is what a job becomes that ended so.
func (p *player) became(t *mTenant, j *mJob, e ending, cancelled, unstarted bool) string {
	outcome, until := e.outcome, p.now+e.delay.Microseconds()
	throttled := outcome == EndThrottled || outcome == EndThrottledAll
	switch {
	case throttled:
		t.row++
	case outcome != EndBack && !unstarted:
		t.row = 0
	}
	switch {
	case outcome == EndOK:
		t.end(j, "done")
	case cancelled:
		t.end(j, "cancelled")
	case outcome == EndBack:
		if !unstarted {
			j.fg++
		}
		t.toFront(j)
		return "back"
	case throttled || outcome == EndUncharged:
		switch outcome {
		case EndThrottled:
			t.until = max(t.until, until)
		case EndThrottledAll:
			p.m.until = max(p.m.until, until)
		}
		j.fg++
		if j.th++; j.th >= t.throttles {
			p.seen("dead by throttles")
			t.bury(j, p.now)
			return "dead"
		}
		if !throttled {
			p.seen("uncharged")
			j.st, j.at = "z", until
			return "retry"
		}
		t.toFront(j)
		return "back"
	case outcome == EndDead || j.att-j.fg >= t.attempts:
		t.bury(j, p.now)
		return "dead"
	default:
		j.st, j.at = "z", until
		return "retry"
	}
	return j.st
}

func (p *player) stepCancel() {
	t, id := p.tenant(), pick(p.r, p.ids)
	j := t.jobs[id]
	want := "cancelled"
	switch {
	case j == nil:
		want = ""
	case j.ended():
		want = j.st
	case j.st == "x":
		want = "dead"
	case j.st == "r" || j.st == "c":
		j.st, want = "c", "running"
	default:
		t.left(j)
		t.end(j, "cancelled")
	}
	got := p.repeat(func() string {
		v, err := p.q.run(p.t.Context(), cancelScript, "cancel", t.name, id)
		p.must(err)
		return fmt.Sprint(v)
	}, true)
	p.log("cancel %s %s: %s", t.name, id, got)
	p.seen("cancel " + want)
	if got != want {
		p.t.Errorf("cancel: %q, want %q", got, want)
	}
}

func (p *player) stepDead() {
	t, verb := p.tenant(), pick(p.r, []string{"requeue", "forget"})
	args, want, full := []any{t.name, verb}, 0, 0
	for range 1 + p.r.IntN(3) {
		id, _ := live(p, p.ids, func(id string) bool { return t.jobs[id] != nil && t.jobs[id].st == "x" })
		args = append(args, id)
		j := t.jobs[id]
		switch {
		case full == 1 || j == nil || j.st != "x":
			continue
		case verb == "forget":
			t.end(j, "removed")
		case t.level() >= t.depth:
			full = 1
			continue
		default:
			j.fg, j.cr, j.th = j.att, 0, 0
			t.toFront(j)
		}
		want++
	}
	got := p.repeat(func() string {
		v, err := p.q.run(p.t.Context(), deadScript, "dead", args...)
		p.must(err)
		return fmt.Sprint(v)
	}, false)
	p.log("dead %v: %s", args, got)
	if want > 0 || full > 0 {
		p.seen(fmt.Sprint("dead ", verb, " ", full))
	}
	if got != fmt.Sprint([]int{want, full}) {
		p.t.Errorf("dead: %s, want %d, %d", got, want, full)
	}
}

func (p *player) stepPause() {
	name := pick(p.r, append([]string{""}, p.m.names...))
	p.pause(name, pick(p.r, []int64{0, 0, -1, 50 * milli, 5 * second}))
}

func (p *player) pause(name string, us int64) {
	until := p.now + us
	if us <= 0 {
		until = -us * forever
	}
	stands := &p.m.until
	if name != "" {
		stands = &p.m.tenants[name].until
	}
	switch was := *stands > p.now; {
	case was && until == 0:
		p.m.logged["r"]++
	case !was && until > 0:
		p.m.logged["p"]++
	}
	*stands = until
	p.log("pause %q for %d", name, us)
	p.repeat(func() string { p.must(p.admin.pause(p.t.Context(), name, fmt.Sprint(us))); return "" }, true)
}

func (p *player) stepPurge() {
	t := p.tenant()
	want := int64(len(t.wait))
	for _, id := range slices.Clone(t.wait) {
		t.end(t.jobs[id], "cancelled")
	}
	for _, j := range t.jobs {
		if j.st == "l" || j.st == "z" {
			t.end(j, "cancelled")
			want++
		}
	}
	p.log("purge %s: %d", t.name, want)
	got := p.repeat(func() string {
		v, err := p.q.run(p.t.Context(), purgeScript, "purge", t.name)
		p.must(err)
		return fmt.Sprint(v)
	}, false)
	if got != fmt.Sprint(want) {
		p.t.Errorf("purge: %s, want %d", got, want)
	}
}
