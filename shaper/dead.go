package shaper

import (
	"context"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// Dead returns up to limit dead jobs of a tenant, the latest first.
func (a *Admin) Dead(ctx context.Context, tenant string, limit int) ([]Job, error) {
	return a.list(ctx, tenant, StateDead, limit)
}

// RequeueDead brings dead jobs back to the front of their bucket, with all their attempts again;
// without ids all dead jobs of the tenant. full says that it stopped because the bucket has no more
// room.
func (a *Admin) RequeueDead(ctx context.Context, tenant string, ids ...string) (requeued int, full bool, err error) {
	return a.dead(ctx, "requeue", tenant, ids)
}

// RemoveDead forgets dead jobs; without ids all dead jobs of the tenant.
func (a *Admin) RemoveDead(ctx context.Context, tenant string, ids ...string) (int, error) {
	n, _, err := a.dead(ctx, "forget", tenant, ids)
	return n, err
}

func (a *Admin) dead(ctx context.Context, verb, tenant string, ids []string) (n int, full bool, err error) {
	if err := ValidName("tenant", tenant); err != nil {
		return 0, false, err
	}
	for _, id := range ids {
		if err := ValidName("id", id); err != nil {
			return 0, false, err
		}
	}
	if len(ids) == 0 {
		if ids, err = a.q.RDB.ZRange(ctx, a.q.DeadKey(tenant), 0, -1).Result(); err != nil {
			return 0, false, a.q.Failed(ctx, "list dead jobs", err, tenant)
		}
	}
	for more := true; more && !full; more = len(ids) > 0 { // without ids too: the script knows whether the tenant was ever seen
		k := min(len(ids), queue.Batch)
		args := []any{verb}
		for _, id := range ids[:k] {
			args = append(args, id)
		}
		ids = ids[k:]
		v, err := a.runSeen(ctx, queue.DeadScript, verb+" dead jobs", tenant, args...)
		if err != nil {
			return n, full, err
		}
		r := queue.ReplyOf(v)
		n += int(r.Int())
		full = r.Int() == 1
	}
	return n, full, nil
}
