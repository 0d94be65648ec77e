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
		p.seen("offer " + r[:strings.Index(r, " ")])
	}
	refused := !slices.ContainsFunc(want, func(r string) bool { return r[:3] == "acc" })
	before := ""
	if refused {
		before = p.dump()
	}
	got := p.repeat(func() string {
		v, err := p.q.run(p.t.Context(), enqueueScript, "enqueue", args...)
		p.must(err)
		var got []string
		for r := replyOf(v); r.more(); {
			one := replyOf(r.next())
			status, position := one.str(), one.int()
			eta, retry := one.int(), one.int()
			if (status == "full" || status == "block") && retry < milli {
				p.t.Errorf("%s, and try again after %d µs", status, retry)
			}
			if status == "accepted" && eta != 0 && eta < p.now { // 0 is not known
				p.t.Errorf("accepted to start %d µs ago", p.now-eta)
			}
			got = append(got, fmt.Sprint(status, " ", position))
		}
		return fmt.Sprint(got)
	}, !refused && len(want) == 1 && t.full != DropOldest)
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
		position := 0
		if !j.ended() {
			position = slices.Index(t.wait, s.ID) + 1
		}
		if j.digest == string(s.Payload) {
			return fmt.Sprint("duplicate ", position)
		}
		return fmt.Sprint("conflict ", position)
	}
	if lvl := t.level(); lvl >= t.depth && !t.makeRoom(lvl, p.now) {
		if t.full == Block {
			return "block 0"
		}
		return "full 0"
	}
	j := &mJob{id: s.ID, digest: string(s.Payload), wait: s.MaxWait.Milliseconds(), tok: "-", st: "n",
		since: p.now + s.Delay.Microseconds() + nth}
	t.jobs[s.ID] = j
	if s.Delay > 0 {
		j.st, j.at = "l", p.now+s.Delay.Microseconds()
		return "accepted 0"
	}
	t.wait = append(t.wait, s.ID)
	return fmt.Sprint("accepted ", len(t.wait))
}

// makeRoom ends jobs that waited too long, or the oldest that was never started, if that makes room for one.
func (t *mTenant) makeRoom(lvl, now int64) bool {
	var ends []*mJob
	var oldest *mJob
	for _, id := range t.wait {
		if lvl-int64(len(ends)) < t.depth {
			break
		}
		switch j := t.jobs[id]; {
		case t.overdue(j, now):
			ends = append(ends, j)
		case t.full == DropOldest && oldest == nil && j.att == 0:
			oldest = j
		}
	}
	left := lvl - int64(len(ends))
	if left > t.depth || left == t.depth && oldest == nil {
		return false
	}
	for _, j := range ends {
		t.end(j, "expired")
	}
	if left == t.depth {
		t.end(oldest, "dropped")
	}
	return true
}
