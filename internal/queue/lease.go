package queue

import (
	"context"
	"time"
)

// Standing is what Beat learns of a running job.
type Standing int64

const (
	Lost      Standing = 0 // somebody else may run it by now
	Owned     Standing = 1
	Cancelled Standing = 2 // still owned, and somebody cancelled it
)

// Held is a start that a pool owns.
type Held struct {
	*Grant
	Begun bool // its handler has begun; from the first Beat that says so it counts as a start
}

// Beat says that a pool lives, has places, and still runs the jobs that it owns; it extends their leases. A pool
// that is not heard of for ttl counts as gone. Returns a Standing for each job.
func (g *Gate) Beat(ctx context.Context, pool string, places int, ttl time.Duration, own []Held) ([]Standing, error) {
	out, _, err := g.beat(ctx, pool, places, ttl, own, 0)
	return out, err
}

// BeatAgain is Beat for a pool that has beaten within the last minute, and did not leave. Such a pool is unknown only where Redis has lost
// what it had; then known is false, and nothing was changed.
func (g *Gate) BeatAgain(ctx context.Context, pool string, places int, ttl time.Duration, own []Held) (_ []Standing, known bool, err error) {
	return g.beat(ctx, pool, places, ttl, own, 1)
}

func (g *Gate) beat(ctx context.Context, pool string, places int, ttl time.Duration, own []Held, again int) ([]Standing, bool, error) {
	const unknown = Standing(-1)
	out := make([]Standing, 0, len(own))
	for first := true; first || len(own) > 0; first = false {
		n := min(len(own), Batch)
		args := []any{pool, places, Micros(ttl), again}
		for _, o := range own[:n] {
			begun := 0
			if o.Begun {
				begun = 1
			}
			args = append(args, o.Tenant, o.ID, o.Token, begun)
		}
		own = own[n:]
		v, err := g.q.Run(ctx, BeatScript, "extend leases", args...)
		if err != nil {
			return out, true, err
		}
		for r := ReplyOf(v); r.More(); {
			s := Standing(r.Int())
			if s == unknown {
				return nil, false, nil
			}
			out = append(out, s)
		}
	}
	return out, true, nil
}

// Leave forgets a pool that has stopped. Jobs that it still runs stay counted until their leases end.
func (g *Gate) Leave(ctx context.Context, pool string) error {
	if err := g.q.RDB.HDel(ctx, g.q.PoolsKey(), pool).Err(); err != nil {
		return g.q.Failed(ctx, "leave", err)
	}
	return nil
}
