package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// endWithin is how long a server that was told of its end takes no more writes.
const endWithin = time.Minute

// EndInOrder tells a Redis that belongs to this process that it is about to end, and to keep all
// that it holds: nothing that its downstreams granted will be forgotten, so after its restart no
// tenant waits for what may have been (notice_restart in lua/lib/tenant.lua). From then on it takes
// no writes, since one that came later could be lost. Whoever calls this ends the server next.
func EndInOrder(ctx context.Context, rdb redis.UniversalClient) error {
	err := endInOrder(ctx, rdb)
	if err != nil {
		return StoreErr("end in order", err)
	}
	return nil
}

func endInOrder(ctx context.Context, rdb redis.UniversalClient) error {
	ended := map[string]string{} // key of a downstream -> the run id that it knows
	keys := rdb.Scan(ctx, 0, prefix("*")+"d", 1000).Iterator()
	for keys.Next(ctx) {
		rid, err := rdb.HGet(ctx, keys.Val(), "rid").Result()
		if errors.Is(err, redis.Nil) {
			continue // no script has looked at it yet
		}
		if err != nil {
			return fmt.Errorf("%s: %w", keys.Val(), err)
		}
		ended[keys.Val()] = rid
	}
	if err := keys.Err(); err != nil {
		return err
	}
	_, err := rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for key, rid := range ended {
			pipe.HSet(ctx, key, "ended", rid)
		}
		pipe.Do(ctx, "client", "pause", endWithin.Milliseconds(), "write")
		return nil
	})
	return err
}
