package buckets

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/timeline.lua
	luaTimeline string
	//go:embed lua/leaky_queue.lua
	luaLeakyQueue string

	//go:embed lua/changes.lua
	luaChanges string

	queueScript = redis.NewScript(luaChanges + luaTimeline + luaLeakyQueue)
)

// LuaTimeline returns the source of Timeline as Lua functions, for a larger script; see the comment
// at its top.
func LuaTimeline() string { return luaTimeline }

// OfferIn is Offer for a Timeline that is kept in Redis, as a hash at key that expires after an
// hour. It decides at the instant now, µs since the epoch, whatever the server's clock says: for
// tests and traces, since callers with clocks of their own share no timeline. Its errors wrap
// ErrStore. The queue must be valid.
func (q LeakyQueue) OfferIn(ctx context.Context, client redis.Scripter, key string, now int64) (QueueDecision, error) {
	most, _ := q.Rate.span(q.Depth - 1)
	rate := fmt.Sprintf("%d/%d", q.Rate.Events, q.Rate.periodMicros())
	v, err := queueScript.Run(ctx, client, []string{key}, clampInstant(now), rate, most.us, most.frac, q.Grace.Microseconds()).Int64Slice()
	if err != nil {
		return QueueDecision{}, fmt.Errorf("offer to %s: %w: %w", key, ErrStore, err)
	}
	if len(v) != 3 {
		return QueueDecision{}, fmt.Errorf("offer to %s: %w: %d answers, want 3", key, ErrStore, len(v))
	}
	return QueueDecision{Allowed: v[0] == 1, LeavesIn: micros(v[1]), RetryAfter: micros(v[2])}, nil
}
