package shaper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/coalesce"
	"github.com/jobshaper/jobshaper/internal/crashpoint"
)

// Client offers jobs to the tenants of one downstream. It needs no scheduler or worker in its process.
// It is safe for concurrent use, and owns no connection: closing rdb is up to its owner. A call that several share may outlive
// those who left it, at most until rdb's own timeout.
type Client struct {
	q          queue
	opts       ClientConfig
	admissions admissions
	offers     *coalesce.Group[*offering, Outcome]
}

// ClientConfig is set once for a Client. The zero value serves.
type ClientConfig struct {
	MaxPayload int // largest payload in bytes; default DefaultMaxPayload

	// Wait is how many replicas must have a job before it counts as accepted, so that it outlives the primary. Where
	// they do not say so in time, the answer is an *UnconfirmedError. 0 asks none: a failover may lose the last moment's jobs.
	// It needs a *redis.Client or a *redis.ClusterClient.
	Wait        int
	WaitTimeout time.Duration // how long they may take; default DefaultWaitTimeout
}

// NewClient returns a Client for a downstream. It does not talk to Redis.
func NewClient(rdb redis.UniversalClient, downstream string, opts ClientConfig) (*Client, error) {
	q, err := newQueue(rdb, downstream)
	if err != nil {
		return nil, err
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if opts.Wait > 0 {
		switch rdb.(type) {
		case *redis.Client, *redis.ClusterClient:
		default:
			return nil, errNoConnection(rdb)
		}
	}
	return newClient(q, opts), nil
}

func newClient(q queue, opts ClientConfig) *Client {
	if opts.MaxPayload == 0 {
		opts.MaxPayload = DefaultMaxPayload
	}
	if opts.WaitTimeout == 0 {
		opts.WaitTimeout = DefaultWaitTimeout
	}
	c := &Client{q: q, opts: opts}
	c.offers = coalesce.New(offerBatch, c.offerAll)
	return c
}

// PayloadTooLargeError says that a payload is over the limit. It wraps ErrInvalid.
type PayloadTooLargeError struct{ Size, Max int }

func (e *PayloadTooLargeError) Error() string {
	return fmt.Sprintf("payload of %d bytes: want at most %d; pass a reference to the data instead", e.Size, e.Max)
}

func (e *PayloadTooLargeError) Unwrap() error { return ErrInvalid }

// check fills in defaults and validates s. named tells whether the producer chose the id.
func (c *Client) check(s *Spec) (named bool, err error) {
	if s.Tenant == "" {
		s.Tenant = DefaultName
	}
	if named = s.ID != ""; !named {
		s.ID = NewID()
	}
	p := Policy{MaxAttempts: s.MaxAttempts, Timeout: s.Timeout, MaxWait: s.MaxWait, Retention: s.Retention}
	if err := firstErr(ValidName("tenant", s.Tenant), ValidName("id", s.ID), validType(s.Type), validHeaders(s.Headers), p.Validate()); err != nil {
		return named, err
	}
	if len(s.Payload) > c.opts.MaxPayload {
		return named, &PayloadTooLargeError{len(s.Payload), c.opts.MaxPayload}
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

// Offer offers one job, in one round trip. With the policy on_full: block it waits for room until ctx ends, and
// then returns the refusal. An error means that the input is invalid (ErrInvalid, nothing was changed) or that Redis
// failed (ErrStore, it is unknown whether the job was accepted: offer it again under the same ID; *UnconfirmedError is one of them).
//
// Offers that are made at the same time share calls, and each caller's own ctx ends its own wait, with an ErrStore that wraps ctx's error.
func (c *Client) Offer(ctx context.Context, s Spec) (Result, error) {
	args, err := c.offerArgs(&s)
	if err != nil {
		return Result{}, err
	}
	for pause := (again.Pause{First: 5 * time.Millisecond, Most: 500 * time.Millisecond}); ; {
		o, err := c.offers.Do(ctx, &offering{spec: s, args: args})
		if err != nil {
			return Result{}, storeErr("enqueue", err)
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

// offerArgs checks s and returns what the enqueue script is told of it.
func (c *Client) offerArgs(s *Spec) ([]any, error) {
	named, err := c.check(s)
	if err != nil {
		return nil, err
	}
	// An answer that replicas did not confirm names the id, so that the job can be offered again, as one that chose its own.
	body, digest, err := s.encode(named || c.opts.Wait > 0)
	if err != nil {
		return nil, err
	}
	at := int64(0)
	if !s.At.IsZero() {
		at = s.At.UnixMicro()
	}
	return []any{s.ID, micros(s.Delay), at, digest, body}, nil
}

// result reads what the enqueue script says of one job. block tells that the tenant's policy is to wait for room.
func (c *Client) result(s *Spec, v any, err error) (r Result, block bool, _ error) {
	r = Result{ID: s.ID, Tenant: s.Tenant, Downstream: c.q.downstream, Status: Refused}
	if err != nil {
		if !strings.Contains(err.Error(), "OOM ") {
			return Result{}, false, err
		}
		r.Reason, r.RetryAfter = RefusedMemory, time.Second
		return r, false, nil
	}
	rep := replyOf(v)
	status := rep.str()
	r.Position, r.ETA = int(rep.int()), rep.instant()
	r.RetryAfter = rep.micros()
	r.State, r.Note = offeredState(rep.str()), rep.str()
	r.Admission = c.admissions.verdict(replyOf(rep.next()))
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
	case "unknown":
		r.Reason, r.RetryAfter = RefusedUnknown, -1
	default:
		return Result{}, false, storeErr("enqueue", fmt.Errorf("unexpected reply %q", clip.Value(status)))
	}
	return r, status == "block", nil
}

// offeredState reads the state that the enqueue script tells: a letter of a job's state line, "l" for one that is not due yet, or how
// the job ended.
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

// Outcome is the answer to one Spec of OfferMany.
type Outcome struct {
	Result Result
	Err    error

	block bool // no room, and the tenant's policy is to wait for it
}

// Of the jobs that are offered together, those of a tenant share calls of the enqueue script, with bounds, since a script should
// not keep Redis from others for longer than a few ms; and some calls share a round trip.
const (
	offerBatch = 100       // jobs in a call
	offerBytes = 256 << 10 // about how much they may hold
	offerCalls = 8         // calls in a round trip
)

// OfferMany offers jobs in pipelines, each on its own: one that is invalid or refused hinders no other. It returns one
// Outcome per Spec, in order; jobs of one tenant are accepted in order. It never waits for room: with on_full: block a full
// bucket refuses.
func (c *Client) OfferMany(ctx context.Context, specs []Spec) []Outcome {
	out := make([]Outcome, len(specs))
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

// offering is a job that is valid, and what the script is told of it.
type offering struct {
	spec  Spec
	args  []any
	index int // among the specs of OfferMany
}

// offerCall is one call of the enqueue script.
type offerCall struct {
	args   []any
	bytes  int
	jobs   []int // among the offerings
	cmd    *redis.Cmd
	waited *redis.IntCmd // how many replicas have what it wrote; nil where they are not asked
}

// offerAll offers jobs, and returns an Outcome for each, in order.
func (c *Client) offerAll(ctx context.Context, jobs []*offering) []Outcome {
	var calls []*offerCall
	last := map[string]*offerCall{} // by tenant
	for i, o := range jobs {
		k := last[o.spec.Tenant]
		if k == nil || len(k.jobs) == offerBatch || k.bytes > offerBytes {
			k = &offerCall{args: []any{o.spec.Tenant}}
			last[o.spec.Tenant] = k
			calls = append(calls, k)
		}
		k.args = append(k.args, o.args...)
		k.bytes += len(o.spec.Payload)
		k.jobs = append(k.jobs, i)
	}
	out := make([]Outcome, len(jobs))
	for len(calls) > 0 {
		n := min(len(calls), offerCalls)
		c.send(ctx, calls[:n], jobs, out)
		calls = calls[n:]
	}
	return out
}

// send makes some calls in one round trip.
func (c *Client) send(ctx context.Context, calls []*offerCall, jobs []*offering, out []Outcome) {
	if c.opts.Wait > 0 {
		c.sendConfirmed(ctx, calls)
	} else {
		c.sendPlain(ctx, calls)
	}
	for _, k := range calls {
		v, err := k.cmd.Result()
		if err != nil {
			err = c.q.failed(ctx, "enqueue", err, k.args[0])
		}
		r := replyOf(v)
		for _, i := range k.jobs {
			o := &out[i]
			o.Result, o.block, o.Err = c.result(&jobs[i].spec, r.next(), err)
			*o = c.confirmed(*o, k)
		}
	}
}

func (c *Client) sendPlain(ctx context.Context, calls []*offerCall) {
	var pipe redis.Pipeliner
	if len(calls) > 1 {
		pipe = c.q.rdb.Pipeline()
		for _, k := range calls {
			k.cmd = enqueueScript.EvalSha(ctx, pipe, c.q.keys(), c.q.args(k.args...)...)
		}
		crashpoint.Hit("pipeline.before")
		_, _ = pipe.Exec(ctx) // each command has its own error
		crashpoint.Hit("pipeline.after")
	}
	for _, k := range calls {
		if k.cmd == nil || redis.HasErrorPrefix(k.cmd.Err(), "NOSCRIPT") { // alone, or a restarted Redis: Run loads the script again
			crashpoint.Hit(enqueueScript.before)
			k.cmd = enqueueScript.Run(ctx, c.q.rdb, c.q.keys(), c.q.args(k.args...)...)
			crashpoint.Hit(enqueueScript.after)
		}
	}
}

// Cancel ends a job that has not ended, and returns the state that it is in now: StateCancelled, and it will not
// start again; StateRunning: its handler's context ends with ErrCancelled, and whatever comes of it but success, it will
// not start again; another ended state: it was too late. ErrNotFound if nothing is known of the job.
func (c *Client) Cancel(ctx context.Context, tenant, id string) (State, error) {
	if err := firstErr(ValidName("tenant", tenant), ValidName("id", id)); err != nil {
		return "", err
	}
	v, err := c.q.run(ctx, cancelScript, "cancel job", tenant, id)
	if err != nil {
		return "", err
	}
	s, _ := v.(string)
	if s == "" {
		return "", fmt.Errorf("job %s of tenant %s: %w", id, tenant, ErrNotFound)
	}
	return State(s), nil
}

// Wait returns a job once it has ended. It asks Redis again and again, more and more slowly (each 20 ms at first, each
// second in the end), so that a job costs nothing for being followed by nobody.
func (c *Client) Wait(ctx context.Context, tenant, id string) (Job, error) {
	for pause := (again.Pause{First: 20 * time.Millisecond, Most: time.Second}); ; {
		j, err := c.Find(ctx, tenant, id)
		switch {
		case err != nil && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid)):
			return j, err
		case err == nil && j.State.Ended():
			return j, nil
		}
		if !pause.Wait(ctx, 0) {
			return j, fmt.Errorf("wait for job %s: %w", id, context.Cause(ctx))
		}
	}
}
