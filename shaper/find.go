package shaper

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/queue"
)

// Find returns what is known of a job, or ErrNotFound.
func (c *Client) Find(ctx context.Context, tenant, id string) (Job, error) {
	if err := cmp.Or(ValidName("tenant", tenant), ValidName("id", id)); err != nil {
		return Job{}, err
	}
	return find(ctx, c.q, tenant, id)
}

// find reads a job's parts in one script, so that they belong together.
func find(ctx context.Context, q queue.Queue, tenant, id string) (Job, error) {
	v, err := q.Run(ctx, queue.FindScript, "find job", tenant, id)
	if err != nil {
		return Job{}, err
	}
	r := queue.ReplyOf(v)
	body, state, end, later, dead := r.Str(), r.Str(), r.Str(), r.Score(), r.Score()
	j := Job{ID: id, Tenant: tenant, Downstream: q.Downstream}
	if body == "" {
		if end == "" {
			return Job{}, fmt.Errorf("job %s of tenant %s: %w", id, tenant, ErrNotFound)
		}
		return j, j.readEnd(end)
	}
	b, err := queue.ReadBody(body)
	if err != nil {
		return j, fmt.Errorf("job %s of tenant %s: %w", id, tenant, err)
	}
	j.Type, j.Payload, j.Headers, j.Accepted = b.Type, b.Payload, b.Headers, b.Since
	j.State, j.Position = StateWaiting, int(r.Int())
	if !later.IsZero() {
		j.State, j.Due = StateDelayed, later
	}
	if state != "" {
		if err := j.readState(state); err != nil {
			// It will not start by itself: set_apart in internal/queue/lua/lib/job.lua makes it dead when
			// its turn comes.
			j.State, j.Reason, j.Error = StateDead, ReasonUnreadable, err.Error()
		}
	}
	j.EndedAt = dead
	return j, nil
}

var states = map[string]State{"w": StateWaiting, "o": StateOut, "r": StateRunning, "c": StateRunning, "z": StateDelayed, "x": StateDead}

var stateLine = regexp.MustCompile(`^[worczx]( \d+){4} \S+ \d+ \d+ \S+ \S+ `)

// readState reads the state line that internal/queue/lua/lib/job.lua writes.
func (j *Job) readState(line string) error {
	if !stateLine.MatchString(line) {
		return fmt.Errorf("its state cannot be read: %q", clip.Value(line))
	}
	f := strings.SplitN(line, " ", 11)
	attempt, forgiven := atoi(f[2]), atoi(f[3])
	j.State, j.Attempt, j.Charged, j.Crashes = states[f[0]], int(attempt), int(attempt-forgiven), int(atoi(f[4]))
	j.Slot = queue.Instant(atoi(f[6]))
	marks := strings.Split(f[9], ",")
	if marks[0] != "-" {
		j.Reason = marks[0]
	}
	for _, m := range marks[1:] {
		switch word, n, _ := strings.Cut(m, "="); word {
		case "throttles":
			j.Throttles = int(atoi(n))
		case "suspect":
			j.Suspect = true
		case "blamed":
			j.Blamed = int(atoi(n))
		}
	}
	j.Error = f[10]
	return nil
}

// readEnd reads what finished() of internal/queue/lua/lib/job.lua writes of a job that ended.
func (j *Job) readEnd(s string) error {
	parts := strings.SplitN(s, "\n", 3)
	f := strings.Fields(parts[0])
	if len(parts) != 3 || len(f) < 10 { // newer versions may add more
		return fmt.Errorf("job %s of tenant %s: end %q cannot be read", j.ID, j.Tenant, clip.Value(s))
	}
	attempt, forgiven := atoi(f[1]), atoi(f[2])
	j.State, j.Attempt, j.Charged, j.Crashes = State(f[0]), int(attempt), int(attempt-forgiven), int(atoi(f[3]))
	j.Slot, j.Accepted, j.EndedAt = queue.Instant(atoi(f[5])), queue.Instant(atoi(f[6])), queue.Instant(atoi(f[7]))
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

// atoi reads a number from Redis; anything else reads as 0.
func atoi(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
