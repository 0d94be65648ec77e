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
	Digest string   // names the content of the configuration
	Before string   // that of the one that was applied last before; "" = none. The same: it holds already, and nothing was changed
	Left   []string // tenants that the one before named and this one does not: they have the defaults again
	By     string   // if not "": another one was begun while this one was applied, and holds in its place
}

// Apply sets the whole policy of the downstream and of the tenants named, as a configuration has
// them: a field that is not set is unset, a tenant that the configuration before named and this one
// does not has the defaults again, and one that only ever was set by hand stays as it is.
//
// What is applied last holds, whatever the clocks say. Only a configuration whose content was
// applied last, as a whole, is not applied again: it leaves alone what was set by hand since. An
// Apply that ends early, with an error or a process, leaves a part of it, and the next one of any
// content is applied.
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

// all goes through all the steps. If it is not over, it is to begin anew: the same content was
// begun again, by another daemon, after a third one had interrupted both.
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

// step makes one step. Its reply is nil if it was the last that could be made.
func (c *applying) step(ctx context.Context, step string, args ...any) (r *queue.Reply, over bool, err error) {
	v, err := c.a.q.Run(ctx, queue.ConfigScript, "apply configuration", append([]any{step, c.digest, c.gen}, args...)...)
	if err != nil {
		return nil, false, err
	}
	r = queue.ReplyOf(v)
	code, other, gen := r.Int(), r.Str(), r.Int()
	switch {
	case code == 0:
		if other == c.digest || other == "" { // or Redis has lost all
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

// ConfigState is how the configuration of a downstream stands, see Admin.LookAtConfig.
type ConfigState struct {
	Holds  string   // digest of the one that was applied last; "" = none, or Redis has lost it
	Partly bool     // its application has not come to its end: it goes on, or was left
	Others []string // digests of others that daemons have which looked too
}

// LookAtConfig tells which configuration holds, and which ones daemons had other than the one with
// this digest that looked within the last while, at most a minute. It makes known that this process
// has that one.
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
