package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// If somebody else's value is under one of our keys, Redis says WRONGTYPE, but not for which key.
// So the keys are then looked at, each as what it should be, and the error tells what was found.

// kind is a kind of value: its name, and a command that is refused on every other kind.
type kind struct {
	Kind string
	look []any // the command; the key comes second
}

var (
	aHash      = kind{"hash", []any{"hget", "-"}}
	aList      = kind{"list", []any{"llen"}}
	aSortedSet = kind{"sorted set", []any{"zcard"}}
	aStream    = kind{"stream", []any{"xrange", "-", "+", "count", 1}}
)

// Kept is a key, and what kind of value is kept under it.
type Kept struct {
	Key string
	kind
}

// Kept returns the keys of a downstream, and those of the given tenants of it.
func (q Queue) Kept(tenants ...string) []Kept {
	l := []Kept{{q.DownstreamKey(), aHash}, {q.DueKey(), aSortedSet}, {q.ReadyKey(), aSortedSet}, {q.OutKey(), aSortedSet}, {q.RunKey(), aSortedSet},
		{q.PoolsKey(), aHash}, {q.TenantsKey(), aSortedSet}, {q.NamedKey(), aSortedSet}, {q.ConfigsKey(), aSortedSet}, {q.LogKey(), aStream}}
	for _, t := range tenants {
		l = append(l, Kept{q.TenantKey(t), aHash}, Kept{q.WaitKey(t), aList}, Kept{q.BackKey(t), aSortedSet}, Kept{q.LaterKey(t), aSortedSet}, Kept{q.JobsKey(t), aHash},
			Kept{q.StateKey(t), aHash}, Kept{q.OutsKey(t), aSortedSet}, Kept{q.DeadKey(t), aSortedSet})
	}
	return l
}

// Failed wraps a failure of Redis with what was being done, as StoreErr does, and an error that the
// server replied with the downstream or key that it is about as well. args are those of the call:
// if a tenant is among them its keys are looked at, besides those of tenants whose turn it is.
func (q Queue) Failed(ctx context.Context, doing string, err error, args ...any) error {
	var reply redis.Error
	switch {
	case !errors.As(err, &reply):
		return StoreErr(doing, err)
	case q.refused(err) != nil:
		return fmt.Errorf("%s: %w", doing, q.refused(err))
	case !strings.Contains(err.Error(), "WRONGTYPE"):
		return StoreErr(doing, fmt.Errorf("downstream %s: %w", q.Downstream, err))
	}
	tenants, _ := q.RDB.ZRange(ctx, q.DueKey(), 0, Batch-1).Result()
	ready, _ := q.RDB.ZRange(ctx, q.ReadyKey(), 0, Batch-1).Result()
	tenants = append(tenants, ready...)
	for _, arg := range args[:min(len(args), 4*Batch)] {
		if name, ok := arg.(string); ok && IsName(name) {
			tenants = append(tenants, name)
		}
	}
	keys := q.Kept(tenants...)
	cmds, _ := q.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, k := range keys {
			p.Do(ctx, append([]any{k.look[0], k.Key}, k.look[1:]...)...)
		}
		return nil
	})
	for i, cmd := range cmds {
		if e := cmd.Err(); e != nil && strings.HasPrefix(e.Error(), "WRONGTYPE") {
			return StoreErr(doing, fmt.Errorf("key %s holds what Jobshaper did not write: want a %s, or nothing: %w", keys[i].Key, keys[i].Kind, err))
		}
	}
	return StoreErr(doing, fmt.Errorf("a key of downstream %s, %s…, holds what Jobshaper did not write: %w", q.Downstream, q.Prefix, err))
}
