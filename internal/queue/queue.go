package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/crashpoint"
)

// Queue is one downstream in Redis.
type Queue struct {
	RDB        redis.UniversalClient
	Downstream string
	Prefix     string       // of all its keys
	Clock      func() int64 // µs since the epoch, for a test that pretends them; nil = Redis' clock
}

// Open returns the Queue of a downstream. It does not talk to Redis. The caller must have checked
// the client and the name.
func Open(rdb redis.UniversalClient, downstream string) Queue {
	if EnqueueScript.Script == nil {
		panic("queue: no scripts are defined: import package shaper, which has the policies that they read")
	}
	return Queue{RDB: rdb, Downstream: downstream, Prefix: prefix(downstream)}
}

// Keys is what a script is told of its keys: the prefix of all. The second one is for Redis Cluster
// alone. While a slot moves to another node, the old node redirects calls whose keys it does not
// have, and nobody has a key that is just the prefix; the new node would then run them on what has
// arrived so far. For a call with several keys it wants to have all of them, and says TRYAGAIN
// until the whole slot has moved.
func (q Queue) Keys() []string { return []string{q.Prefix, q.DownstreamKey()} }

// Args puts the clock, ARGV[1] of every script, before the others.
func (q Queue) Args(args ...any) []any {
	now := int64(0)
	if q.Clock != nil {
		now = q.Clock()
	}
	return append([]any{strconv.FormatInt(now, 10)}, args...)
}

// Run calls a script. Every script may be repeated, so go-redis may do that when a reply is lost.
func (q Queue) Run(ctx context.Context, s *Script, doing string, args ...any) (any, error) {
	reply, err := q.Call(ctx, s, args...).Result()
	if err != nil {
		err = q.Failed(ctx, doing, err, args...)
	}
	return reply, err
}

// Call is Run, but does not add to an error what was being done.
func (q Queue) Call(ctx context.Context, s *Script, args ...any) *redis.Cmd {
	crashpoint.Hit(s.before)
	cmd := s.Run(ctx, q.RDB, q.Keys(), q.Args(args...)...)
	crashpoint.Hit(s.after)
	return cmd
}

// IsName reports whether s matches [A-Za-z0-9][A-Za-z0-9._-]{0,63}, as names that are part of a key
// must. It runs several times for each job, so it is no regular expression.
func IsName(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// ErrStore is what every failure of Redis itself wraps: shaper.ErrStore.
var ErrStore = errors.New("store failed")

// StoreErr wraps a failure of Redis with what was being done.
func StoreErr(doing string, err error) error {
	return fmt.Errorf("%s: %w: %w", doing, ErrStore, err)
}
