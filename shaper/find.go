package shaper

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jobshaper/jobshaper/internal/clip"
)

// Find returns what is known of a job, or ErrNotFound.
func (c *Client) Find(ctx context.Context, tenant, id string) (Job, error) {
	if err := firstErr(ValidName("tenant", tenant), ValidName("id", id)); err != nil {
		return Job{}, err
	}
	return c.q.find(ctx, tenant, id)
}

// find reads a job's parts in one script, so that they belong together.
func (q queue) find(ctx context.Context, tenant, id string) (Job, error) {
	v, err := q.run(ctx, findScript, "find job", tenant, id)
	if err != nil {
		return Job{}, err
	}
	r := replyOf(v)
	body, state, end, later, dead := r.str(), r.str(), r.str(), r.score(), r.score()
	j := Job{ID: id, Tenant: tenant, Downstream: q.downstream}
	if body == "" {
		if end == "" {
			return Job{}, fmt.Errorf("job %s of tenant %s: %w", id, tenant, ErrNotFound)
		}
		return j, j.readEnd(end)
	}
	e, err := decodeBody(body)
	if err != nil {
		return j, fmt.Errorf("job %s of tenant %s: %w", id, tenant, err)
	}
	j.Type, j.Payload, j.Headers, j.Accepted = e.typ, e.payload, e.headers, e.since
	j.State, j.Position = StateWaiting, int(r.int())
	if !later.IsZero() {
		j.State, j.Due = StateDelayed, later
	}
	if state != "" {
		if err := j.readState(state); err != nil {
			return j, err
		}
	}
	j.EndedAt = dead
	return j, nil
}

var states = map[string]State{"w": StateWaiting, "o": StateOut, "r": StateRunning, "c": StateRunning, "z": StateDelayed, "x": StateDead}

// readState reads the state line that lua/lib/job.lua writes.
func (j *Job) readState(line string) error {
	f := strings.SplitN(line, " ", 11)
	if len(f) != 11 || states[f[0]] == "" {
		return fmt.Errorf("job %s of tenant %s: state %q cannot be read", j.ID, j.Tenant, clip.Value(line))
	}
	attempt, forgiven := atoi(f[2]), atoi(f[3])
	j.State, j.Attempt, j.Charged, j.Crashes = states[f[0]], int(attempt), int(attempt-forgiven), int(atoi(f[4]))
	j.Slot = instant(atoi(f[6]))
	marks := strings.Split(f[9], ",")
	if marks[0] != "-" {
		j.Reason = marks[0]
	}
	for _, m := range marks[1:] {
		if n, ok := strings.CutPrefix(m, "throttles="); ok {
			j.Throttles = int(atoi(n))
		}
	}
	j.Error = f[10]
	return nil
}

// readEnd reads the tombstone that finished() of lua/lib/job.lua writes.
func (j *Job) readEnd(s string) error {
	parts := strings.SplitN(s, "\n", 3)
	f := strings.Fields(parts[0])
	if len(parts) != 3 || len(f) != 10 {
		return fmt.Errorf("job %s of tenant %s: end %q cannot be read", j.ID, j.Tenant, clip.Value(s))
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
