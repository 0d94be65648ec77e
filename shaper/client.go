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
	for {
		v, err := c.q.run(ctx, enqueueScript, "enqueue", args...)
		r, block, err := c.result(s, v, err)
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

func (c *Client) offerArgs(s *Spec) ([]any, error) {
	named, err := c.check(s)
	if err != nil {
		return nil, err
	}
	body, digest, err := s.encode(nonce(), named)
	if err != nil {
		return nil, err
	}
	at := int64(0)
	if !s.At.IsZero() {
		at = s.At.UnixMicro()
	}
	return []any{s.Tenant, s.ID, micros(s.Delay), at, digest, body}, nil
}

// result reads the reply of the enqueue script. block tells that the tenant's policy is to wait for room.
func (c *Client) result(s Spec, v any, err error) (r Result, block bool, _ error) {
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

// offerBatch is how many jobs share a round trip in OfferMany.
const offerBatch = 200

// OfferMany offers jobs in pipelines, each on its own: one that is invalid or refused hinders no other. It returns one
// Outcome per Spec, in order. It never waits for room: with on_full: block a full bucket refuses.
func (c *Client) OfferMany(ctx context.Context, specs []Spec) []Outcome {
	out := make([]Outcome, len(specs))
	for start := 0; start < len(specs); start += offerBatch {
		end := min(start+offerBatch, len(specs))
		c.offerBatch(ctx, specs[start:end], out[start:end])
	}
	return out
}

func (c *Client) offerBatch(ctx context.Context, specs []Spec, out []Outcome) {
	pipe := c.q.rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(specs))
	args := make([][]any, len(specs))
	checked := make([]Spec, len(specs))
	for i, s := range specs {
		a, err := c.offerArgs(&s)
		checked[i] = s
		if err != nil {
			out[i].Err = err
			continue
		}
		args[i] = c.q.args(a...)
		cmds[i] = enqueueScript.EvalSha(ctx, pipe, c.q.keys(), args[i]...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, cmd := range cmds {
		if cmd == nil {
			continue
		}
		v, err := cmd.Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") { // a restarted Redis: Run loads the script again
			v, err = enqueueScript.Run(ctx, c.q.rdb, c.q.keys(), args[i]...).Result()
		}
		if err != nil {
			err = storeErr("enqueue", err)
		}
		out[i].Result, _, out[i].Err = c.result(checked[i], v, err)
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
