package shaper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// JobFilter narrows what Jobs lists. The zero value means the first 100 jobs that have not ended.
type JobFilter struct {
	States []State // waiting, delayed, out, running, dead; none = all but dead
	Limit  int     // default 100
}

// Validate returns a *FieldError for the first state that no listed job is in.
func (f JobFilter) Validate() error {
	for _, s := range f.States {
		switch s {
		case StateWaiting, StateDelayed, StateOut, StateRunning, StateDead:
		default:
			return &FieldError{"state", string(s), "waiting, delayed, out, running or dead"}
		}
	}
	return nil
}

// Jobs lists a tenant's jobs that have not ended, or are dead: running ones first, then the others
// in the order in which they leave.
func (a *Admin) Jobs(ctx context.Context, tenant string, f JobFilter) ([]Job, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	if len(f.States) == 0 {
		f.States = []State{StateRunning, StateOut, StateWaiting, StateDelayed}
	}
	var out []Job
	for _, s := range f.States {
		if len(out) >= f.Limit {
			break
		}
		l, err := a.list(ctx, tenant, s, f.Limit-len(out))
		if err != nil {
			return nil, err
		}
		out = append(out, l...)
	}
	return out, nil
}

// list lists a tenant's jobs in one state.
func (a *Admin) list(ctx context.Context, tenant string, state State, limit int) ([]Job, error) {
	if err := cmp.Or(ValidName("tenant", tenant), JobFilter{States: []State{state}}.Validate()); err != nil {
		return nil, err
	}
	var ids []string
	var err error
	last := int64(limit - 1)
	switch state {
	case StateWaiting:
		ids, err = waitingIDs(ctx, a.q, tenant, limit)
	case StateDelayed:
		ids, err = a.q.RDB.ZRange(ctx, a.q.LaterKey(tenant), 0, last).Result()
	case StateDead:
		ids, err = a.q.RDB.ZRevRange(ctx, a.q.DeadKey(tenant), 0, last).Result()
	case StateOut:
		ids, err = a.inFlight(ctx, a.q.OutKey(), tenant, limit)
	case StateRunning:
		ids, err = a.inFlight(ctx, a.q.RunKey(), tenant, limit)
	}
	if err != nil {
		return nil, a.q.Failed(ctx, "list jobs", err, tenant)
	}
	if len(ids) == 0 {
		_, err := a.Tenant(ctx, tenant) // was it ever seen?
		return nil, err
	}
	out := make([]Job, 0, len(ids))
	for _, id := range ids {
		j, err := find(ctx, a.q, tenant, id)
		if errors.Is(err, ErrNotFound) {
			continue // it ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, j)
	}
	return out, nil
}

// waitingIDs returns the first ids of a bucket: those that came back, then those that were never
// out.
func waitingIDs(ctx context.Context, q queue.Queue, tenant string, limit int) ([]string, error) {
	back, err := q.RDB.ZRange(ctx, q.BackKey(tenant), 0, int64(limit-1)).Result()
	if err != nil || len(back) >= limit {
		return back, err
	}
	ids, err := q.RDB.LRange(ctx, q.WaitKey(tenant), 0, int64(limit-len(back)-1)).Result()
	return append(back, ids...), err
}

// inFlight returns the ids of a tenant in the books of tickets out or jobs running.
func (a *Admin) inFlight(ctx context.Context, book, tenant string, limit int) ([]string, error) {
	members, err := a.q.RDB.ZRange(ctx, book, 0, -1).Result()
	var ids []string
	for _, m := range members {
		if t, id, ok := strings.Cut(m, " "); ok && t == tenant && len(ids) < limit {
			ids = append(ids, id)
		}
	}
	sort.Strings(ids)
	return ids, err
}

// FindJob looks for a job among all known tenants. It returns ErrNotFound if there is none.
func (a *Admin) FindJob(ctx context.Context, id string) (Job, error) {
	if err := ValidName("id", id); err != nil {
		return Job{}, err
	}
	names, err := a.Names(ctx, false)
	if err != nil {
		return Job{}, err
	}
	for _, name := range names {
		j, err := find(ctx, a.q, name, id)
		if !errors.Is(err, ErrNotFound) {
			return j, err
		}
	}
	return Job{}, fmt.Errorf("job %s: %w", id, ErrNotFound)
}
