package trace

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
)

// QueueRow is the queue's answer to one call.
type QueueRow struct {
	Call
	buckets.QueueDecision
}

// Queue makes the calls in turn, one job each, with the state in memory.
func Queue(q buckets.LeakyQueue, calls []Call) []QueueRow {
	rows := make([]QueueRow, len(calls))
	var t buckets.Timeline
	for i, c := range calls {
		rows[i].Call = c
		t, rows[i].QueueDecision = q.Offer(t, c.At)
	}
	return rows
}

// QueueInRedis is Queue with state and arithmetic in Redis, under one key that is removed at the
// end. The queue must be valid.
func QueueInRedis(ctx context.Context, client redis.UniversalClient, key string, q buckets.LeakyQueue, calls []Call) ([]QueueRow, error) {
	defer client.Del(context.WithoutCancel(ctx), key) // if that fails, its TTL removes it
	rows := make([]QueueRow, len(calls))
	for i, c := range calls {
		d, err := q.OfferIn(ctx, client, key, c.At)
		if err != nil {
			return nil, err
		}
		rows[i] = QueueRow{c, d}
	}
	return rows, nil
}
