package buckets

import (
	"context"
	"errors"
	"fmt"
)

// Request is one part of a TakeAll.
type Request struct {
	Limiter *Redis
	Key     string
	N       int64
}

// TakeAll asks several limits in one script: all of them pass and take, or none takes.
// It returns the decision of each, in order. Allowed says whether that limit alone would
// have let the request pass; where not all did, each says what is left with nothing taken.
// A request beyond its limit is refused like any other, with RetryAfter Never.
//
// All limiters must use the client of the first; in a cluster all keys must share a slot
// (see RedisConfig.Tag). No two requests may name the same Redis key. The clock of the
// first decides. Errors are those of AllowN; after one, nothing is known to have been taken.
func TakeAll(ctx context.Context, requests ...Request) ([]Decision, bool, error) {
	if len(requests) == 0 {
		return nil, true, nil
	}
	keys := make([]string, len(requests))
	plans := make([]*plan, len(requests))
	seen := make(map[string]bool, len(requests))
	args := append(make([]any, 0, 1+len(requests)*(1+scriptArgs)), requests[0].Limiter.now())
	for i, q := range requests {
		if err := invalid(q.Key, q.N); err != nil {
			return nil, false, fmt.Errorf("request %d: %w", i, err)
		}
		plans[i], keys[i] = q.Limiter.plan.Load(), q.Limiter.Key(q.Key)
		if seen[keys[i]] {
			return nil, false, fmt.Errorf("request %d: %w: %q is asked twice: want one request with the sum", i, ErrKey, keys[i])
		}
		seen[keys[i]] = true
		args = append(args, q.Limiter.name)
		start := len(args)
		args = pad(append(args, plans[i].args(q.N)...), start)
	}
	rows, err := eval(ctx, requests[0].Limiter.client, allScript, keys, args)
	if err != nil {
		return nil, false, err
	}
	decisions, all := make([]Decision, len(requests)), true
	for i := range requests {
		var row []any
		if i < len(rows) {
			row, _ = rows[i].([]any)
		}
		d, err := plans[i].finish(row, requests[i].N) // which says what is wrong with a nil row
		if err != nil && !errors.Is(err, ErrTooLarge) {
			return nil, false, err
		}
		decisions[i] = d
		all = all && d.Allowed
	}
	return decisions, all, nil
}
