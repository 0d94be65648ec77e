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
	Clock      func() int64 // µs since the epoch for a test that pretends one; nil = Redis' clock
}

// Open returns the Queue of a downstream. It does not talk to Redis. Its caller has checked both
// the client and the name.
func Open(rdb redis.UniversalClient, downstream string) Queue {
	if EnqueueScript.Script == nil {
		panic("queue: no scripts are defined: import package shaper, which has the policies that they read")
	}
	return Queue{RDB: rdb, Downstream: downstream, Prefix: prefix(downstream)}
}

// Keys are what a script is told of its keys: the prefix of all. The second one is for Redis
// Cluster alone. While a slot moves to another node, the old one sends on calls whose keys it does
// not have, which the prefix never is; the new one would then run them on what has arrived so far.
// Of a call with several keys it wants to have all, and until the slot has moved as a whole it says
// TRYAGAIN.
func (q Queue) Keys() []string { return []string{q.Prefix, q.DownstreamKey()} }

// Args puts the clock, ARGV[1] of every script, before the others.
func (q Queue) Args(args ...any) []any {
	now := int64(0)
	if q.Clock != nil {
		now = q.Clock()
	}
	return append([]any{strconv.FormatInt(now, 10)}, args...)
}

// Run calls a script. Every one of them may be repeated, so go-redis may do so when a reply is
// lost.
func (q Queue) Run(ctx context.Context, s *Script, doing string, args ...any) (any, error) {
	reply, err := q.Call(ctx, s, args...).Result()
	if err != nil {
		err = q.Failed(ctx, doing, err, args...)
	}
	return reply, err
}

// Call is Run without a word on what failed.
func (q Queue) Call(ctx context.Context, s *Script, args ...any) *redis.Cmd {
	crashpoint.Hit(s.before)
	cmd := s.Run(ctx, q.RDB, q.Keys(), q.Args(args...)...)
	crashpoint.Hit(s.after)
	return cmd
}

// IsName matches [A-Za-z0-9][A-Za-z0-9._-]{0,63}: what a name may be that is part of a key. It runs
// several times for each job.
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

// ErrStore is wrapped by every failure of Redis itself: shaper.ErrStore.
var ErrStore = errors.New("store failed")

// StoreErr wraps a failure of Redis with what was being done.
func StoreErr(doing string, err error) error {
	return fmt.Errorf("%s: %w: %w", doing, ErrStore, err)
}
