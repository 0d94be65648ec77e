package queue

import (
	"context"
	"fmt"
	"time"
)

// Ending says how a start ended.
type Ending string

const (
	EndOK           Ending = "ok"
	EndError        Ending = "error"         // comes back after Delay, or is dead if it used up its attempts
	EndUncharged    Ending = "uncharged"     // comes back after Delay; not charged, but one of the max_throttles starts after which it is dead
	EndDead         Ending = "dead"          // no attempt can succeed
	EndThrottled    Ending = "throttled"     // the tenant is paused for Delay; not charged
	EndThrottledAll Ending = "throttled-all" // the downstream is paused for Delay; not charged
	EndBack         Ending = "back"          // back to the front; not charged
)

// Finish is what a worker reports.
type Finish struct {
	Ending Ending
	Delay  time.Duration // backoff of EndError and EndUncharged, pause of EndThrottled
	Text   string        // result or error
	Next   string        // a fresh token, if the worker wants the downstream's next job at once
	Began  Began         // when the handler began. NeverBegan, with EndBack or EndDead, takes the attempt back
}

// Began tells what came of a slot: when the handler began, or that it never did. The zero value: the worker does not know.
type Began struct {
	known, never bool
	late         time.Duration
}

// BeganAfter says that the handler began so long after its slot, as the worker's monotonic clock has it.
func BeganAfter(late time.Duration) Began { return Began{known: true, late: late} }

// NeverBegan says that the handler did not begin: the slot went by without a start.
var NeverBegan = Began{known: true, never: true}

// field is how lua/finish.lua takes it.
func (b Began) field() string {
	switch {
	case !b.known:
		return "?"
	case b.never:
		return "-"
	}
	return Micros(b.late)
}

// Finished is the answer to a report.
type Finished struct {
	Became string // "done", "retry", "dead", "cancelled", "back", or "stale" if somebody else owns the job; then nothing was changed
	InARow int    // of a throttled start: how many of its tenant were so in a row, this one included; 0 in a repeated answer
	Next   *Grant // the next job, if the worker wanted one and could have it
}

// Finish records how a start ended, if its token still owns the job, and grants the next job to a worker that
// wants one and can have it. With an error there may be a Next all the same: one whose job cannot be read.
func (g *Gate) Finish(ctx context.Context, of *Grant, f Finish) (Finished, error) {
	token := f.Next
	if token == "" {
		token = "-"
	}
	args := []any{of.Tenant, of.ID, of.Token, string(f.Ending), Micros(f.Delay), f.Text, token, f.Began.field()}
	answer, err := g.reports.Do(ctx, args)
	if err == nil {
		err = answer.err
	}
	if err != nil {
		return Finished{}, err
	}
	r := ReplyOf(answer.reply)
	out := Finished{Became: r.Str()}
	if out.Became == "fault" {
		return Finished{}, fmt.Errorf("finish job %s of tenant %s: its record cannot be read: %s", of.ID, of.Tenant, r.Str())
	}
	for r.More() {
		switch r.Str() {
		case "throttled":
			out.InARow = int(r.Int())
		case "run":
			out.Next, err = ReadGrant(r, token)
			return out, err
		}
	}
	return out, nil
}

// reported is what the finish script answers to one report.
type reported struct {
	reply any
	err   error
}

// report makes one call for the reports of several workers.
func (g *Gate) report(ctx context.Context, reports [][]any) []reported {
	var args []any
	for _, r := range reports {
		args = append(args, r...)
	}
	v, err := g.q.Run(ctx, FinishScript, "finish jobs", args...)
	r := ReplyOf(v)
	out := make([]reported, len(reports))
	for i := range out {
		out[i] = reported{r.Next(), err}
	}
	return out
}
