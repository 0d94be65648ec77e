package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	info, err := rdb.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	var current []string // keys of downstreams that know this run of Redis
	_, run, _ := strings.Cut(info, "run_id:")
	run, _, _ = strings.Cut(run, "\r\n")
	keys := rdb.Scan(ctx, 0, prefix("*")+"d", 1000).Iterator()
	for keys.Next(ctx) {
		seen, err := rdb.HGet(ctx, keys.Val(), "rid").Result()
		switch {
		case err == nil && seen == run:
			current = append(current, keys.Val())
		case err != nil && !errors.Is(err, redis.Nil):
			return fmt.Errorf("%s: %w", keys.Val(), err)
		}
		// Any other saw an earlier run last, or none. That one may have forgotten a grant, and the
		// next look at the downstream must notice it.
	}
	if err := keys.Err(); err != nil {
		return err
	}
	_, err = rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range current {
			pipe.HSet(ctx, key, "ended", run)
		}
		pipe.Do(ctx, "client", "pause", endWithin.Milliseconds(), "write")
		return nil
	})
	return err
}
