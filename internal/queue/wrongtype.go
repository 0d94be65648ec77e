package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Somebody else's value under one of our keys makes Redis say WRONGTYPE, and not of what key. So
// the keys are looked at then, each as what it should be. What was found is told with the error.

// kind is a kind of value, its name, and a command that is refused on every other one.
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

// Kept is a key, and what is kept under it.
type Kept struct {
	Key string
	kind
}

// Kept are the keys of a downstream, and those of tenants of it.
func (q Queue) Kept(tenants ...string) []Kept {
	l := []Kept{{q.DownstreamKey(), aHash}, {q.DueKey(), aSortedSet}, {q.ReadyKey(), aSortedSet}, {q.OutKey(), aSortedSet}, {q.RunKey(), aSortedSet},
		{q.PoolsKey(), aHash}, {q.TenantsKey(), aSortedSet}, {q.NamedKey(), aSortedSet}, {q.ConfigsKey(), aSortedSet}, {q.LogKey(), aStream}}
	for _, t := range tenants {
		l = append(l, Kept{q.TenantKey(t), aHash}, Kept{q.WaitKey(t), aList}, Kept{q.BackKey(t), aSortedSet}, Kept{q.LaterKey(t), aSortedSet}, Kept{q.JobsKey(t), aHash},
			Kept{q.StateKey(t), aHash}, Kept{q.OutsKey(t), aSortedSet}, Kept{q.DeadKey(t), aSortedSet})
	}
	return l
}

// Failed wraps a failure of Redis with what was being done, as StoreErr does, and what a server
// says with the downstream or key that it is about. args are those of the call: where a tenant is
// among them, its keys are looked at too, besides those of tenants whose turn it is.
func (q Queue) Failed(ctx context.Context, doing string, err error, args ...any) error {
	var reply redis.Error
	switch {
	case !errors.As(err, &reply):
		return StoreErr(doing, err)
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
