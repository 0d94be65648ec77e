package main

import (
	"context"
	"time"

	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/shaper"
)

// patiently offers jobs, and until o.deadline offers those again that found no room, when their
// answers say to. It returns the last answer to each.
//
// After the first round it offers only as many jobs of each tenant as are likely to find room, in
// order: the jobs of a tenant keep their order, and a long line of them costs little.
func (o *offer) patiently(ctx context.Context, specs []shaper.Spec) []shaper.Offered {
	out := o.client.OfferMany(ctx, specs)
	if o.wait <= 0 {
		return out
	}
	lines := window{}
	for ctx.Err() == nil {
		now := time.Now()
		left := o.deadline.Sub(now)
		due, waits := lines.due(out, now)
		if !waits || left <= 0 {
			break
		}
		if !again.Sleep(ctx, min(due.Sub(now), left)) {
			break
		}
		now = time.Now()
		round := lines.choose(out, now, !now.Before(o.deadline))
		specsNow := make([]shaper.Spec, len(round))
		for i, at := range round {
			specsNow[i] = specs[at]
			specsNow[i].ID = out[at].Result.ID // the same job, even if a reply was lost
		}
		answers := o.client.OfferMany(ctx, specsNow)
		for i, at := range round {
			out[at] = answers[i]
		}
		lines.learn(answers)
	}
	return out
}

// window is what is known of the jobs of each tenant that wait for room.
type window map[string]*waiting

type waiting struct {
	width int // how many jobs the next round offers: twice as many as the last if that accepted all, else one
	pause again.Pause
	due   time.Time // when the next round is; zero = not known yet
}

func (w window) of(tenant string) *waiting {
	l := w[tenant]
	if l == nil {
		l = &waiting{width: 1, pause: again.Pause{First: 5 * time.Millisecond, Most: time.Second}}
		w[tenant] = l
	}
	return l
}

// waits reports whether a job was refused and may yet be accepted.
func waits(o shaper.Offered) bool {
	return o.Err == nil && o.Result.Status != shaper.Accepted && o.Result.RetryAfter >= 0
}

// due returns when the next round is. The answer to each tenant's first job that waits says when it
// makes sense to ask again.
func (w window) due(out []shaper.Offered, now time.Time) (next time.Time, any bool) {
	for _, o := range out {
		if !waits(o) {
			continue
		}
		l := w.of(o.Result.Tenant)
		if l.due.IsZero() {
			l.due = now.Add(l.pause.Next(o.Result.RetryAfter))
		}
		if !any || l.due.Before(next) {
			next, any = l.due, true
		}
	}
	return next, any
}

// choose returns which of the refused jobs to offer next, in order: of each tenant that is due, or
// of all in the last round.
func (w window) choose(out []shaper.Offered, now time.Time, last bool) (round []int) {
	taken := map[string]int{}
	for i, o := range out {
		tenant := o.Result.Tenant
		if !waits(o) || now.Before(w.of(tenant).due) && !last || taken[tenant] == w.of(tenant).width {
			continue
		}
		taken[tenant]++
		round = append(round, i)
	}
	return round
}

func (w window) learn(answers []shaper.Offered) {
	offered, accepted := map[string]int{}, map[string]int{}
	for _, a := range answers {
		offered[a.Result.Tenant]++
		if a.Result.Status == shaper.Accepted {
			accepted[a.Result.Tenant]++
		}
	}
	for tenant, n := range offered {
		l := w.of(tenant)
		l.width, l.due = 1, time.Time{}
		if accepted[tenant] == n {
			l.width = 2 * n
		}
		if accepted[tenant] > 0 {
			l.pause.Reset()
		}
	}
}
