package shaper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client offers jobs to the tenants of one downstream. It needs no scheduler or worker in its process.
// It is safe for concurrent use, and owns no goroutine or connection: closing rdb is up to its owner.
type Client struct {
	q          queue
	maxPayload int
}

// ClientOptions are set once for a Client. The zero value serves.
type ClientOptions struct {
	MaxPayload int // largest payload in bytes; default DefaultMaxPayload
}

// NewClient returns a Client for a downstream. It does not talk to Redis.
func NewClient(rdb redis.UniversalClient, downstream string, opts ClientOptions) (*Client, error) {
	q, err := newQueue(rdb, downstream)
	if err != nil {
		return nil, err
	}
	if opts.MaxPayload == 0 {
		opts.MaxPayload = DefaultMaxPayload
	}
	return &Client{q: q, maxPayload: opts.MaxPayload}, nil
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
	if err := firstErr(ValidName("tenant", s.Tenant), ValidName("id", s.ID), validType(s.Type), p.Validate()); err != nil {
		return named, err
	}
	if len(s.Payload) > c.maxPayload {
		return named, &PayloadTooLargeError{len(s.Payload), c.maxPayload}
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
// failed (ErrStore, it is unknown whether the job was accepted: offer it again under the same ID).
func (c *Client) Offer(ctx context.Context, s Spec) (Result, error) {
	args, err := c.offerArgs(&s)
	if err != nil {
		return Result{}, err
	}
	args = append([]any{s.Tenant}, args...)
	for {
		v, err := c.q.run(ctx, enqueueScript, "enqueue", args...)
		r, block, err := c.result(&s, replyOf(v).next(), err)
		if err != nil || !block {
			return r, err
		}
		t := time.NewTimer(r.RetryAfter)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
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
	body, digest, err := s.encode(named)
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
	switch status {
	case "accepted", "duplicate":
		r.Status, r.Duplicate, r.RetryAfter = Accepted, status == "duplicate", 0
	case "full", "block":
		r.Reason = RefusedFull
	case "conflict":
		r.Reason, r.RetryAfter = RefusedConflict, -1
	case "unknown":
		r.Reason, r.RetryAfter = RefusedUnknown, -1
	default:
		return Result{}, false, storeErr("enqueue", fmt.Errorf("unexpected reply %q", clip(status, 40)))
	}
	return r, status == "block", nil
}

// Outcome is the answer to one Spec of OfferMany.
type Outcome struct {
	Result Result
	Err    error
}

// offerBatch is how many jobs of a tenant share a call in OfferMany, and offerBytes about how much they may hold: a script
// should not keep Redis from others for longer than a few ms.
const (
	offerBatch = 100
	offerBytes = 256 << 10
	offerCalls = 8 // calls in a pipeline
)

// OfferMany offers jobs in pipelines, each on its own: one that is invalid or refused hinders no other. It returns one
// Outcome per Spec, in order; jobs of one tenant are accepted in order. It never waits for room: with on_full: block a full
// bucket refuses.
func (c *Client) OfferMany(ctx context.Context, specs []Spec) []Outcome {
	out := make([]Outcome, len(specs))
	var calls []*offerCall
	open := map[string]*offerCall{} // by tenant
	for i := range specs {
		s := specs[i]
		args, err := c.offerArgs(&s)
		if err != nil {
			out[i].Err = err
			continue
		}
		k := open[s.Tenant]
		if k == nil || len(k.index) == offerBatch || k.bytes > offerBytes {
			k = &offerCall{args: c.q.args(s.Tenant)}
			open[s.Tenant] = k
			calls = append(calls, k)
		}
		k.args = append(k.args, args...)
		k.bytes += len(s.Payload)
		k.index, k.specs = append(k.index, i), append(k.specs, s)
		if len(calls) == offerCalls && len(k.index) == offerBatch {
			c.offer(ctx, calls, out)
			calls, open = nil, map[string]*offerCall{}
		}
	}
	for len(calls) > 0 {
		n := min(len(calls), offerCalls)
		c.offer(ctx, calls[:n], out)
		calls = calls[n:]
	}
	return out
}

// offerCall is one call of the enqueue script for some jobs of a tenant.
type offerCall struct {
	args  []any
	bytes int
	index []int // where their outcomes go
	specs []Spec
	cmd   *redis.Cmd
}

// offer makes some calls in one round trip.
func (c *Client) offer(ctx context.Context, calls []*offerCall, out []Outcome) {
	pipe := c.q.rdb.Pipeline()
	for _, k := range calls {
		k.cmd = enqueueScript.EvalSha(ctx, pipe, c.q.keys(), k.args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, k := range calls {
		v, err := k.cmd.Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") { // a restarted Redis: Run loads the script again
			v, err = enqueueScript.Run(ctx, c.q.rdb, c.q.keys(), k.args...).Result()
		}
		if err != nil {
			err = storeErr("enqueue", err)
		}
		r := replyOf(v)
		for i := range k.specs {
			o := &out[k.index[i]]
			o.Result, _, o.Err = c.result(&k.specs[i], r.next(), err)
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
	pause := 20 * time.Millisecond
	for {
		j, err := c.Find(ctx, tenant, id)
		switch {
		case err != nil && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid)):
			return j, err
		case err == nil && j.State.Ended():
			return j, nil
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return j, fmt.Errorf("wait for job %s: %w", id, context.Cause(ctx))
		}
		pause = min(pause*5/4, time.Second)
	}
}
