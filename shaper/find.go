package shaper

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Find returns what is known of a job, or ErrNotFound.
func (c *Client) Find(ctx context.Context, tenant, id string) (Job, error) {
	if err := firstErr(ValidName("tenant", tenant), ValidName("id", id)); err != nil {
		return Job{}, err
	}
	return c.q.find(ctx, tenant, id)
}

// find reads a job's parts in one transaction, so that they belong together.
func (q queue) find(ctx context.Context, tenant, id string) (Job, error) {
	var body, state, end *redis.StringCmd
	var later, dead *redis.FloatCmd
	var place *redis.IntCmd
	_, err := q.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		body = p.HGet(ctx, q.jobsKey(tenant), id)
		state = p.HGet(ctx, q.stateKey(tenant), id)
		end = p.Get(ctx, q.endKey(tenant, id))
		later = p.ZScore(ctx, q.laterKey(tenant), id)
		dead = p.ZScore(ctx, q.deadKey(tenant), id)
		place = p.LPos(ctx, q.waitKey(tenant), id, redis.LPosArgs{MaxLen: 10_000})
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return Job{}, storeErr("find job", err)
	}
	j := Job{ID: id, Tenant: tenant, Downstream: q.downstream}
	if body.Err() != nil {
		if end.Err() != nil {
			return Job{}, fmt.Errorf("job %s of tenant %s: %w", id, tenant, ErrNotFound)
		}
		return j, j.readEnd(end.Val())
	}
	e, err := decodeBody(body.Val())
	if err != nil {
		return j, fmt.Errorf("job %s of tenant %s: %w", id, tenant, err)
	}
	j.Type, j.Payload, j.Headers, j.Accepted = e.typ, e.payload, e.headers, e.since
	j.State = StateWaiting
	if later.Err() == nil {
		j.State, j.Due = StateDelayed, time.UnixMicro(int64(later.Val()))
	}
	if place.Err() == nil {
		j.Position = int(place.Val()) + 1
	}
	if state.Err() == nil {
		if err := j.readState(state.Val()); err != nil {
			return j, err
		}
	}
	if dead.Err() == nil {
		j.EndedAt = time.UnixMicro(int64(dead.Val()))
	}
	return j, nil
}

var states = map[string]State{"w": StateWaiting, "o": StateOut, "r": StateRunning, "c": StateRunning, "z": StateDelayed, "x": StateDead}

// readState reads the state line that lua/job.lua writes.
func (j *Job) readState(line string) error {
	f := strings.SplitN(line, " ", 11)
	if len(f) != 11 || states[f[0]] == "" {
		return fmt.Errorf("job %s of tenant %s: state %q cannot be read", j.ID, j.Tenant, clip(line, 80))
	}
	attempt, forgiven := atoi(f[2]), atoi(f[3])
	j.State, j.Attempt, j.Charged, j.Crashes = states[f[0]], int(attempt), int(attempt-forgiven), int(atoi(f[4]))
	j.Slot = instant(atoi(f[6]))
	if f[9] != "-" {
		j.Reason = f[9]
	}
	j.Error = f[10]
	return nil
}

// readEnd reads the tombstone that finished() of lua/job.lua writes.
func (j *Job) readEnd(s string) error {
	parts := strings.SplitN(s, "\n", 3)
	f := strings.Fields(parts[0])
	if len(parts) != 3 || len(f) != 10 {
		return fmt.Errorf("job %s of tenant %s: end %q cannot be read", j.ID, j.Tenant, clip(s, 80))
	}
	attempt, forgiven := atoi(f[1]), atoi(f[2])
	j.State, j.Attempt, j.Charged, j.Crashes = State(f[0]), int(attempt), int(attempt-forgiven), int(atoi(f[3]))
	j.Slot, j.Accepted, j.EndedAt = instant(atoi(f[5])), instant(atoi(f[6])), instant(atoi(f[7]))
	j.Type = parts[1]
	switch {
	case parts[2] == "":
	case j.State == StateDone:
		j.Result = []byte(parts[2])
	default:
		j.Error = parts[2]
	}
	return nil
}

// atoi reads a number from Redis; what is no number reads as 0.
func atoi(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
