package trace

import (
	"context"
	_ "embed"
	"fmt"
	"math/bits"
	"time"

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

//go:embed queue.lua
var queueSource string

var queueScript = redis.NewScript(queueSource)

// QueueInRedis is Queue with state and arithmetic in Redis, under one key that is removed in the end. The queue must be valid.
func QueueInRedis(ctx context.Context, client redis.UniversalClient, key string, q buckets.LeakyQueue, calls []Call) ([]QueueRow, error) {
	defer client.Del(context.WithoutCancel(ctx), key) // where that fails, its TTL does it
	step, stepRest := spans(q.Rate, 1)
	most, mostRest := spans(q.Rate, q.Depth-1)
	rows := make([]QueueRow, len(calls))
	for i, c := range calls {
		answer, err := queueScript.Run(ctx, client, []string{key}, c.At, q.Rate.Events, step, stepRest, most, mostRest).Int64Slice()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", buckets.ErrStore, err)
		}
		rows[i] = QueueRow{c, buckets.QueueDecision{
			Allowed: answer[0] == 1, Wait: time.Duration(answer[1]) * time.Microsecond, RetryAfter: time.Duration(answer[2]) * time.Microsecond,
		}}
	}
	return rows, nil
}

// spans returns n intervals of the rate, in whole µs and a rest in 1/events µs. A valid queue has none that overflow.
func spans(r buckets.Rate, n int64) (us, rest uint64) {
	hi, lo := bits.Mul64(uint64(n), uint64(r.PeriodMicros()))
	return bits.Div64(hi, lo, uint64(r.Events))
}
