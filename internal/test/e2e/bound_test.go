package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestTheBoundHolds has 100 producers in four processes offer at the same instant to a bucket with
// room for ten.
func TestTheBoundHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := rate(10)
	p.Depth = 10
	r.tenant("a", p)
	var roles []role
	for i := range 4 {
		roles = append(roles, role{Offer: &offering{Tenant: "a", Prefix: fmt.Sprint(i), Jobs: 25}})
	}
	producers := r.startAll(roles...)
	for _, p := range producers {
		_, err := io.WriteString(p.stdin, "go\n")
		r.must(err)
	}
	for _, p := range producers {
		p.end()
	}
	h := r.history()
	refuse(t, history.Unanswered(h))
	if n, m := len(h.Of(history.Accept)), len(h.Of(history.Offer)); n != 10 || m != 100 {
		t.Errorf("%d of %d offers accepted, want 10 of 100", n, m)
	}
	for _, e := range h.Of(history.Refuse) {
		if e.Outcome != shaper.RefusedFull {
			t.Errorf("job %s was refused as %q, want %q", e.ID, e.Outcome, shaper.RefusedFull)
		}
	}
	info, err := r.admin.Tenant(context.Background(), "a")
	r.must(err)
	if info.Level() != 10 || info.Counters.Accepted != 10 {
		t.Errorf("level %d, %d counted as accepted; want 10", info.Level(), info.Counters.Accepted)
	}
}

// TestRefusedLeavesNoTrace compares all that Redis holds before and after a refusal.
func TestRefusedLeavesNoTrace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t)
	p := rate(10)
	p.Depth = 2
	r.tenant("a", p)
	r.offer("a", 2, play{})
	r.offerOne(shaper.Spec{Tenant: "b", ID: "known"}, play{})
	r.downstream(shaper.DownstreamPolicy{UnknownTenants: shaper.RefuseUnknown})
	before := r.dump()
	for _, tc := range []struct {
		reason string
		spec   shaper.Spec
		later  bool // it may pass later
	}{
		{shaper.RefusedFull, shaper.Spec{Tenant: "a", Type: "play"}, true},
		{shaper.RefusedUnknown, shaper.Spec{Tenant: "stranger", Type: "play"}, false},
		{shaper.RefusedConflict, shaper.Spec{Tenant: "b", ID: "known", Type: "other"}, false},
	} {
		result, err := r.client.Offer(ctx, tc.spec)
		r.must(err)
		if result.Status != shaper.Refused || result.Reason != tc.reason || (result.RetryAfter > 0) != tc.later {
			t.Errorf("%+v, want it refused as %s", result, tc.reason)
		}
		if after := r.dump(); !maps.Equal(before, after) {
			t.Errorf("%s: Redis holds other than before:\n%q\n%q", tc.reason, before, after)
		}
	}
}

// dump returns all that Redis holds of the downstream.
func (r *rig) dump() map[string]string {
	r.t.Helper()
	ctx := context.Background()
	var keys []string
	list := func(ctx context.Context, node *redis.Client) (err error) {
		keys, err = node.Keys(ctx, "*{*"+r.name+"}*").Result()
		return err
	}
	switch rdb := r.rdb.(type) {
	case *redis.Client:
		r.must(list(ctx, rdb))
	case *redis.ClusterClient:
		node, err := rdb.MasterForKey(ctx, "{"+r.name+"}")
		r.must(err)
		r.must(list(ctx, node))
	}
	out := map[string]string{}
	for _, key := range keys {
		var err error
		out[key], err = r.rdb.Dump(ctx, key).Result()
		r.must(err)
	}
	return out
}
