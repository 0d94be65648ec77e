package shaper

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/queue"
)

// Applied tells what came of Admin.Apply.
type Applied struct {
	Digest string   // of the configuration's content
	Before string   // digest of the configuration that held before; "" = none. If equal to Digest, nothing was changed
	Left   []string // tenants that the configuration before named and this one does not: they have the defaults again
	By     string   // if not "": the digest of another one that was begun while this one was applied, and holds instead
}

// Apply sets the whole policy of the downstream and of the named tenants, as a configuration has
// them. A field that is not set is unset. A tenant that the configuration before named and this one
// does not has the defaults again. A tenant that was only ever set by hand stays as it is.
//
// What is applied last holds, whatever the clocks say. Only if the same content was the last to be
// applied, as a whole, Apply changes nothing, and leaves alone what was set by hand since. An Apply
// that ends early, with an error or with its process, leaves part of its configuration behind; the
// next Apply, of whatever content, then applies its own.
func (a *Admin) Apply(ctx context.Context, p DownstreamPolicy, tenants map[string]Policy) (Applied, error) {
	if err := p.Validate(); err != nil {
		return Applied{}, fmt.Errorf("downstream %s: %w", a.q.Downstream, err)
	}
	items := []item{newItem("", downstreamFields(p))}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		tp := tenants[name]
		if err := cmp.Or(ValidName("tenant", name), tp.Validate()); err != nil {
			return Applied{}, fmt.Errorf("downstream %s: tenant %s: %w", a.q.Downstream, clip.Value(name), err)
		}
		items = append(items, newItem(name, policyFields(tp)))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", items))
	c := applying{a: a, digest: hex.EncodeToString(sum[:8])}
	for {
		if over, err := c.all(ctx, items); over || err != nil {
			return c.applied, err
		}
	}
}

// item is the policy of the downstream or of a tenant as the script takes it: name, number of
// fields, field, value, …
type item []any

func newItem(name string, fields []string) item {
	it := item{name, 0}
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] != "" {
			it = append(it, fields[i], fields[i+1])
		}
	}
	it[1] = (len(it) - 2) / 2
	return it
}

// applying is a call of Apply.
type applying struct {
	a       *Admin
	digest  string
	gen     int64
	applied Applied
}

// all goes through all the steps. If it is not over, they must be gone through again: another
// daemon began the same content once more, after a third one had interrupted both.
func (c *applying) all(ctx context.Context, items []item) (over bool, err error) {
	c.applied.Digest = c.digest
	r, over, err := c.step(ctx, "begin")
	if over || err != nil {
		return over, err
	}
	for part := range slices.Chunk(items, queue.Batch/2) {
		if r, over, err = c.step(ctx, "set", slices.Concat(part...)...); r == nil {
			return over, err
		}
	}
	for {
		if r, over, err = c.step(ctx, "left"); r == nil {
			return over, err
		}
		if !r.More() {
			break
		}
		for r.More() {
			c.applied.Left = append(c.applied.Left, r.Str())
		}
	}
	_, over, err = c.step(ctx, "end")
	return over || err == nil, err
}

// step makes one step. Its reply is nil if no further step can be made.
func (c *applying) step(ctx context.Context, step string, args ...any) (r *queue.Reply, over bool, err error) {
	v, err := c.a.q.Run(ctx, queue.ConfigScript, "apply configuration", append([]any{step, c.digest, c.gen}, args...)...)
	if err != nil {
		return nil, false, err
	}
	r = queue.ReplyOf(v)
	code, other, gen := r.Int(), r.Str(), r.Int()
	switch {
	case code == 0:
		if other == c.digest || other == "" { // "": Redis has lost everything
			return nil, false, nil
		}
		c.applied.By = other
		return nil, true, nil
	case step == "begin":
		c.applied.Before, c.gen = other, gen
	}
	if code == 2 {
		return nil, true, nil
	}
	return r, false, nil
}

// ConfigState is which configuration of a downstream holds, see Admin.LookAtConfig.
type ConfigState struct {
	Holds  string   // digest of the one that was applied last; "" = none, or Redis has lost it
	Partly bool     // applying it has not ended: it goes on, or was given up
	Others []string // digests of others, with which daemons looked too
}

// LookAtConfig returns which configuration holds, and which others, than the one with this digest,
// daemons have that looked within the given time, at most a minute. It tells them that this process
// has the one with this digest.
func (a *Admin) LookAtConfig(ctx context.Context, digest string, within time.Duration) (ConfigState, error) {
	v, err := a.q.Run(ctx, queue.ConfigScript, "look at configuration", "look", digest, 0, queue.Micros(within))
	if err != nil {
		return ConfigState{}, err
	}
	r := queue.ReplyOf(v)
	s := ConfigState{Holds: r.Str(), Partly: r.Int() == 1}
	for r.More() {
		s.Others = append(s.Others, r.Str())
	}
	s.Partly = s.Partly && s.Holds != ""
	return s, nil
}
