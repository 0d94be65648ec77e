package main

import (
	"context"
	"time"

	"github.com/jobshaper/jobshaper/shaper"
)

// patiently offers jobs, and again those for which there was no room, as told, until o.deadline. It returns
// the last answer to each.
//
// After the first round it offers of each tenant only as many as are likely to find room, in order, so that jobs of a tenant
// keep theirs and a long line of them costs little.
func (o *offer) patiently(ctx context.Context, specs []shaper.Spec) []shaper.Outcome {
	out := o.client.OfferMany(ctx, specs)
	if o.wait <= 0 {
		return out
	}
	next := window{}
	for ctx.Err() == nil {
		round, pause := next.choose(out)
		left := time.Until(o.deadline)
		if len(round) == 0 || left <= 0 {
			break
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
			return out
		}
		again := make([]shaper.Spec, len(round))
		for i, at := range round {
			again[i] = specs[at]
			again[i].ID = out[at].Result.ID // the same job, also if a reply was lost
		}
		answers := o.client.OfferMany(ctx, again)
		for i, at := range round {
			out[at] = answers[i]
		}
		next.learn(answers)
	}
	return out
}

// window is how many jobs of each tenant the next round offers: twice as many after a round in which all were
// accepted, else one.
type window map[string]int

// choose returns which of the refused jobs to offer next, in order, and how long to wait before.
func (w window) choose(out []shaper.Outcome) (round []int, pause time.Duration) {
	taken := map[string]int{}
	for i, o := range out {
		r := o.Result
		if o.Err != nil || r.Status == shaper.Accepted || r.RetryAfter < 0 {
			continue
		}
		if taken[r.Tenant] == max(1, w[r.Tenant]) {
			continue
		}
		taken[r.Tenant]++
		if len(round) == 0 || r.RetryAfter < pause {
			pause = r.RetryAfter
		}
		round = append(round, i)
	}
	return round, max(pause, time.Millisecond)
}

func (w window) learn(answers []shaper.Outcome) {
	offered, accepted := map[string]int{}, map[string]int{}
	for _, a := range answers {
		offered[a.Result.Tenant]++
		if a.Result.Status == shaper.Accepted {
			accepted[a.Result.Tenant]++
		}
	}
	for tenant, n := range offered {
		w[tenant] = 1
		if accepted[tenant] == n {
			w[tenant] = 2 * n
		}
	}
}
