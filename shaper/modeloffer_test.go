package shaper

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// stepOffer offers one to three jobs to a tenant in one call.
func (p *player) stepOffer() {
	t := p.tenant()
	args := []any{t.name}
	var want []string
	var known []*mJob
	for i := range 1 + p.r.IntN(3) {
		s := Spec{Tenant: t.name, ID: pick(p.r, p.ids), Type: "test", Payload: []byte{"AB"[p.r.IntN(2)]}}
		s.Delay = pick(p.r, []time.Duration{0, 0, 0, 0, 50 * time.Millisecond, 3 * time.Second})
		s.MaxWait = pick(p.r, []time.Duration{0, 0, 0, 0, 100 * time.Millisecond, 5 * time.Second})
		a, err := p.client.offerArgs(&s)
		p.must(err)
		args = append(args, a...)
		r := p.expect(t, s, int64(i))
		p.log("offer %s %s to %s, delay %v, max wait %v: %s", s.ID, s.Payload, t.name, s.Delay, s.MaxWait, r)
		want = append(want, r)
		if strings.HasPrefix(r, "duplicate") {
			known = append(known, t.jobs[s.ID])
		}
		p.seen("offer " + r[:strings.Index(r, " ")])
	}
	// What was found to be known, and made room for what followed it, would begin anew in a repeated call.
	dropped := slices.ContainsFunc(known, func(j *mJob) bool { return j.ended() && j.st != "done" })
	refused := !slices.ContainsFunc(want, func(r string) bool { return r[:3] == "acc" })
	before := ""
	if refused {
		before = p.dump()
	}
	call := func() string {
		v, err := p.q.run(p.t.Context(), enqueueScript, "enqueue", args...)
		p.must(err)
		var got []string
		for r := replyOf(v); r.more(); {
			one := replyOf(r.next())
			status, position := one.str(), one.int()
			eta, retry, state := one.int(), one.int(), one.str()
			if (status == "full" || status == "block") && retry < milli {
				p.t.Errorf("%s, and try again after %d µs", status, retry)
			}
			if status == "accepted" && eta != 0 && eta < p.now { // 0 is not known
				p.t.Errorf("accepted to start %d µs ago", p.now-eta)
			}
			got = append(got, fmt.Sprint(status, " ", position, " ", state))
		}
		return fmt.Sprint(got)
	}
	var got string
	if dropped {
		got = call()
	} else {
		got = p.repeat(call, !refused && len(want) == 1 && t.full != DropOldest)
	}
	if got != fmt.Sprint(want) {
		p.t.Errorf("offered: %s, want %s", got, want)
	}
	if refused && p.dump() != before {
		p.t.Errorf("a refusal left a trace:\n%s\nbecame\n%s", before, p.dump())
	}
}

// expect is what the offer of one job does and is told.
func (p *player) expect(t *mTenant, s Spec, nth int64) string {
	if j := t.jobs[s.ID]; j != nil {
		status, position, state := "duplicate", 0, j.st
		if !j.ended() {
			position = slices.Index(t.wait, s.ID) + 1
		}
		if state == "n" {
			state = "w"
		}
		switch {
		case j.digest != string(s.Payload):
			status = "conflict"
		case j.st == "x":
			status = "dead"
		case j.ended() && j.st != "done":
			status = "" // it begins anew
			p.seen("offer anew")
		}
		if status != "" {
			return fmt.Sprint(status, " ", position, " ", state)
		}
	}
	if lvl := t.level(); lvl >= t.depth && !t.makeRoom(lvl, p.now) {
		if t.full == Block {
			return "block 0 "
		}
		return "full 0 "
	}
	j := &mJob{id: s.ID, digest: string(s.Payload), wait: s.MaxWait.Milliseconds(), tok: "-", st: "n",
		since: p.now + s.Delay.Microseconds() + nth}
	t.jobs[s.ID] = j
	if s.Delay > 0 {
		j.st, j.at = "l", p.now+s.Delay.Microseconds()
		return "accepted 0 l"
	}
	t.wait = append(t.wait, s.ID)
	return fmt.Sprint("accepted ", len(t.wait), " w")
}

// makeRoom ends jobs that waited too long, and the oldest that were never started, if that makes room for one.
func (t *mTenant) makeRoom(lvl, now int64) bool {
	need := int(lvl - t.depth + 1)
	var over, oldest []*mJob
	for _, id := range t.wait {
		switch j := t.jobs[id]; {
		case t.overdue(j, now):
			over = append(over, j)
		case t.full == DropOldest && j.att == 0:
			oldest = append(oldest, j)
		}
	}
	if len(over)+len(oldest) < need {
		return false
	}
	for i, j := range append(over, oldest...)[:need] {
		if i < len(over) {
			t.end(j, "expired")
		} else {
			t.end(j, "dropped")
		}
	}
	return true
}
