package shaper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Somebody else's value under one of our keys makes Redis say WRONGTYPE, and not of what key. So the keys are looked
// at then, each as what it should be. What was found is told with the error.

// kind is a kind of value, and a command that is refused on every other one.
type kind struct {
	name string
	look []any // the command; the key comes second
}

var (
	aHash      = kind{"hash", []any{"hget", "-"}}
	aList      = kind{"list", []any{"llen"}}
	aSortedSet = kind{"sorted set", []any{"zcard"}}
	aStream    = kind{"stream", []any{"xrange", "-", "+", "count", 1}}
)

type kept struct {
	key string
	kind
}

// kept are the keys of a downstream, and those of tenants of it.
func (q queue) kept(tenants ...string) []kept {
	l := []kept{{q.downstreamKey(), aHash}, {q.dueKey(), aSortedSet}, {q.readyKey(), aSortedSet}, {q.outKey(), aSortedSet}, {q.runKey(), aSortedSet},
		{q.poolsKey(), aHash}, {q.tenantsKey(), aSortedSet}, {q.namedKey(), aSortedSet}, {q.configsKey(), aSortedSet}, {q.logKey(), aStream}}
	for _, t := range tenants {
		l = append(l, kept{q.tenantKey(t), aHash}, kept{q.waitKey(t), aList}, kept{q.backKey(t), aSortedSet}, kept{q.laterKey(t), aSortedSet}, kept{q.jobsKey(t), aHash},
			kept{q.stateKey(t), aHash}, kept{q.outsKey(t), aSortedSet}, kept{q.deadKey(t), aSortedSet})
	}
	return l
}

// failed wraps a failure of Redis with what was being done, as storeErr does, and what a server says with the downstream or key that it is about. args are those of the call: where a tenant is
// among them, its keys are looked at too, besides those of tenants whose turn it is.
func (q queue) failed(ctx context.Context, doing string, err error, args ...any) error {
	var reply redis.Error
	switch {
	case !errors.As(err, &reply):
		return storeErr(doing, err)
	case !strings.Contains(err.Error(), "WRONGTYPE"):
		return storeErr(doing, fmt.Errorf("downstream %s: %w", q.downstream, err))
	}
	tenants, _ := q.rdb.ZRange(ctx, q.dueKey(), 0, batch-1).Result()
	ready, _ := q.rdb.ZRange(ctx, q.readyKey(), 0, batch-1).Result()
	tenants = append(tenants, ready...)
	for _, arg := range args[:min(len(args), 4*batch)] {
		if name, ok := arg.(string); ok && ValidName("tenant", name) == nil {
			tenants = append(tenants, name)
		}
	}
	keys := q.kept(tenants...)
	cmds, _ := q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, k := range keys {
			p.Do(ctx, append([]any{k.look[0], k.key}, k.look[1:]...)...)
		}
		return nil
	})
	for i, cmd := range cmds {
		if e := cmd.Err(); e != nil && strings.HasPrefix(e.Error(), "WRONGTYPE") {
			return storeErr(doing, fmt.Errorf("key %s holds what Jobshaper did not write: want a %s, or nothing: %w", keys[i].key, keys[i].name, err))
		}
	}
	return storeErr(doing, fmt.Errorf("a key of downstream %s, %s…, holds what Jobshaper did not write: %w", q.downstream, q.prefix, err))
}
