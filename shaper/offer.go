package shaper

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/crashpoint"
	"github.com/jobshaper/jobshaper/internal/queue"
)

// Offer offers one job, in one round trip. With the policy on_full: block it waits for room until
// ctx ends, and then returns the refusal. An error means that the input is invalid (ErrInvalid;
// nothing was changed) or that Redis failed (ErrStore, which an *UnconfirmedError wraps too;
// whether the job was accepted is unknown, so offer it again under the same ID).
//
// Offers that are made at the same time share calls. Each caller's own ctx ends its own wait, with
// an ErrStore that wraps ctx's error.
func (c *Client) Offer(ctx context.Context, s Spec) (Result, error) {
	args, err := c.offerArgs(&s)
	if err != nil {
		return Result{}, err
	}
	for pause := (again.Pause{First: 5 * time.Millisecond, Most: 500 * time.Millisecond}); ; {
		o, err := c.offers.Do(ctx, &offering{spec: s, args: args})
		if err != nil {
			return Result{}, queue.StoreErr("enqueue", err)
		}
		r, err := o.Result, o.Err
		if err != nil || !o.block {
			return r, err
		}
		if !pause.Wait(ctx, r.RetryAfter) {
			return r, nil
		}
	}
}

// Enqueue offers an asynq task as a job of a tenant, see Offer. Of asynq's options it takes
// MaxRetry, Timeout, ProcessAt, ProcessIn, TaskID and Retention, and MaxWait of this package.
// Others are an error: Queue, Group, Unique and Deadline have no meaning here. A repeated TaskID is
// noticed without Unique.
//
// Options given to asynq.NewTask cannot be read from outside asynq, so a task that has some is an
// error: give them to Enqueue.
func (c *Client) Enqueue(ctx context.Context, tenant string, task *asynq.Task, opts ...asynq.Option) (Result, error) {
	s, err := specOf(tenant, task, opts)
	if err != nil {
		return Result{}, err
	}
	return c.Offer(ctx, s)
}

// Offered is the answer to one Spec of OfferMany.
type Offered struct {
	Result Result
	Err    error

	block bool // no room, and the tenant's policy is to wait for it
}

// OfferMany offers jobs in pipelines, each on its own: one that is invalid or refused does not keep
// others out. It returns one Offered per Spec, in order; jobs of one tenant are accepted in order.
// It never waits for room: even with on_full: block a full bucket refuses.
func (c *Client) OfferMany(ctx context.Context, specs []Spec) []Offered {
	out := make([]Offered, len(specs))
	valid := make([]*offering, 0, len(specs))
	for i, s := range specs {
		args, err := c.offerArgs(&s)
		if err != nil {
			out[i].Err = err
			continue
		}
		valid = append(valid, &offering{spec: s, args: args, index: i})
	}
	for i, o := range c.offerAll(ctx, valid) {
		out[valid[i].index] = o
	}
	return out
}

// check fills in defaults and validates s. named says whether the producer chose the id.
func (c *Client) check(s *Spec) (named bool, err error) {
	if s.Tenant == "" {
		s.Tenant = DefaultName
	}
	if named = s.ID != ""; !named {
		s.ID = NewID()
	}
	p := Policy{MaxAttempts: s.MaxAttempts, Timeout: s.Timeout, MaxWait: s.MaxWait, Retention: s.Retention}
	size := len(s.Payload)
	for name, value := range s.Headers {
		size += len(name) + len(value)
	}
	if size > c.opts.MaxPayload {
		return named, &PayloadTooLargeError{size, c.opts.MaxPayload}
	}
	if err := cmp.Or(ValidName("tenant", s.Tenant), ValidName("id", s.ID), validType(s.Type), validHeaders(s.Headers), p.Validate()); err != nil {
		return named, err
	}
	switch {
	case s.Delay < 0 || s.Delay > 366*day:
		return named, &FieldError{"delay", s.Delay.String(), "0 to 366d"}
	case s.Delay > 0 && !s.At.IsZero():
		return named, &FieldError{"at", s.At.Format(time.RFC3339), "no delay besides, or no at"}
	case !s.At.IsZero() && (s.At.UnixMicro() <= 0 || s.At.After(time.Now().Add(400*day))):
		return named, &FieldError{"at", s.At.Format(time.RFC3339), "a time within a year"}
	}
	return named, nil
}

// offerArgs checks s and returns what the enqueue script is told of it.
func (c *Client) offerArgs(s *Spec) ([]any, error) {
	named, err := c.check(s)
	if err != nil {
		return nil, err
	}
	// An UnconfirmedError names the id, so that the job can be offered again under it, like one
	// whose producer chose the id.
	body, digest, err := bodyOf(s).Encode(named || c.opts.Replicas > 0)
	if err != nil {
		return nil, err
	}
	at := int64(0)
	if !s.At.IsZero() {
		at = s.At.UnixMicro()
	}
	return []any{s.ID, queue.Micros(s.Delay), at, digest, body}, nil
}

// bodyOf is what is kept of a job.
func bodyOf(s *Spec) *queue.Body {
	return &queue.Body{MaxWait: s.MaxWait, MaxAttempts: s.MaxAttempts, Retention: s.Retention, Timeout: s.Timeout,
		Type: s.Type, Headers: s.Headers, Payload: s.Payload}
}

// result reads what the enqueue script says of one job. block says that there is no room, and the
// tenant's policy is to wait for it.
func (c *Client) result(s *Spec, v any, err error) (r Result, block bool, _ error) {
	r = Result{ID: s.ID, Tenant: s.Tenant, Downstream: c.q.Downstream, Status: Refused}
	if err != nil {
		if !strings.Contains(err.Error(), "OOM ") {
			return Result{}, false, err
		}
		r.Reason, r.RetryAfter = RefusedMemory, time.Second
		return r, false, nil
	}
	rep := queue.ReplyOf(v)
	status := rep.Str()
	r.Position, r.ETA = int(rep.Int()), rep.Instant()
	r.RetryAfter = rep.Micros()
	r.State, r.Note = offeredState(rep.Str()), rep.Str()
	r.Admission = c.admissions.verdict(queue.ReplyOf(rep.Next()))
	switch status {
	case "accepted", "duplicate":
		r.Status, r.Duplicate, r.RetryAfter = Accepted, status == "duplicate", 0
	case "full", "block":
		r.Reason = RefusedFull
	case "limited":
		r.Reason, r.RetryAfter = RefusedLimited, time.Second
		if r.Admission != nil {
			r.RetryAfter = r.Admission.RetryAfter
		}
	case "conflict":
		r.Reason, r.RetryAfter = RefusedConflict, -1
	case "dead":
		r.Reason, r.RetryAfter = RefusedDead, -1
	case "parked":
		r.Reason = RefusedParked
	case "unknown":
		r.Reason, r.RetryAfter = RefusedUnknown, -1
	default:
		return Result{}, false, queue.StoreErr("enqueue", fmt.Errorf("unexpected reply %q", clip.Value(status)))
	}
	return r, status == "block", nil
}

// offeredState reads the state that the enqueue script returns: a letter of a job's state line, "l"
// for a job that is not due yet, or how the job ended.
func offeredState(s string) State {
	switch state, known := states[s]; {
	case s == "l":
		return StateDelayed
	case s == "o":
		return StateWaiting
	case known:
		return state
	}
	return State(s)
}

// Of the jobs that are offered together, those of a tenant share calls of the enqueue script, and
// calls for several tenants share a round trip. A call is bounded, since a script should not keep
// Redis from others for longer than a few ms. It may leave jobs to the next one, so the next one for
// its tenant goes out only when it was answered: jobs of a tenant are accepted in order.
const (
	offerBatch = 200       // jobs in a call
	offerBytes = 256 << 10 // payload in a call, about
	offerCalls = 8         // calls in a round trip
)

// offering is a job that is valid, and what the script is told of it.
type offering struct {
	spec  Spec
	args  []any
	index int // among the specs of OfferMany
}

// offerCall is one call of the enqueue script.
type offerCall struct {
	tenant string
	args   []any
	jobs   []int // among the offerings
	cmd    *redis.Cmd
	waited *redis.IntCmd // how many replicas have what it wrote; nil if they are not asked
}

// offerAll offers jobs, and returns an Offered for each, in order.
func (c *Client) offerAll(ctx context.Context, jobs []*offering) []Offered {
	var tenants []string
	left := map[string][]int{} // by tenant, the jobs that were not answered
	for i, o := range jobs {
		if left[o.spec.Tenant] == nil {
			tenants = append(tenants, o.spec.Tenant)
		}
		left[o.spec.Tenant] = append(left[o.spec.Tenant], i)
	}
	out := make([]Offered, len(jobs))
	for len(tenants) > 0 {
		var calls []*offerCall
		n := min(len(tenants), offerCalls)
		for _, tenant := range tenants[:n] {
			calls = append(calls, callFor(tenant, left[tenant], jobs))
		}
		tenants = tenants[n:]
		c.send(ctx, calls, jobs, out)
		for _, k := range calls {
			if left[k.tenant] = left[k.tenant][len(k.jobs):]; len(left[k.tenant]) > 0 {
				tenants = append(tenants, k.tenant)
			}
		}
	}
	return out
}

// callFor is the next call for a tenant that has these jobs left.
func callFor(tenant string, left []int, jobs []*offering) *offerCall {
	k, bytes := &offerCall{tenant: tenant, args: []any{tenant}}, 0
	for _, i := range left[:min(len(left), offerBatch)] {
		if bytes > offerBytes {
			break
		}
		k.args = append(k.args, jobs[i].args...)
		k.jobs = append(k.jobs, i)
		bytes += len(jobs[i].spec.Payload)
	}
	return k
}

// send makes some calls in one round trip. Each is left with those of its jobs that were answered.
func (c *Client) send(ctx context.Context, calls []*offerCall, jobs []*offering, out []Offered) {
	if c.opts.Replicas > 0 {
		c.sendConfirmed(ctx, calls)
	} else {
		c.sendPlain(ctx, calls)
	}
	for _, k := range calls {
		v, err := k.cmd.Result()
		if err != nil {
			err = c.q.Failed(ctx, "enqueue", err, k.tenant)
		}
		r := queue.ReplyOf(v)
		for n, i := range k.jobs {
			if n > 0 && err == nil && !r.More() {
				k.jobs = k.jobs[:n]
				break
			}
			o := &out[i]
			o.Result, o.block, o.Err = c.result(&jobs[i].spec, r.Next(), err)
			*o = c.confirmed(*o, k)
		}
	}
}

func (c *Client) sendPlain(ctx context.Context, calls []*offerCall) {
	var pipe redis.Pipeliner
	if len(calls) > 1 {
		pipe = c.q.RDB.Pipeline()
		for _, k := range calls {
			k.cmd = queue.EnqueueScript.EvalSha(ctx, pipe, c.q.Keys(), c.q.Args(k.args...)...)
		}
		crashpoint.Hit("pipeline.before")
		_, _ = pipe.Exec(ctx) // each command has its own error
		crashpoint.Hit("pipeline.after")
	}
	for _, k := range calls {
		if k.cmd == nil || redis.HasErrorPrefix(k.cmd.Err(), "NOSCRIPT") { // alone, or a restarted Redis: Run loads the script again
			k.cmd = c.q.Call(ctx, queue.EnqueueScript, k.args...)
		}
	}
}
