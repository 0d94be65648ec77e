package shaper

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/policing"
)

// rules parses admission rules, one from each text.
func rules(t *testing.T, texts ...string) []policing.Rule {
	t.Helper()
	var out []policing.Rule
	for _, text := range texts {
		r, err := policing.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// The rules of a downstream are asked in the enqueue script: all or nothing, and only if nothing
// else refuses.
func TestAdmission(t *testing.T) {
	rdb := redistest.Open(t)
	ctx := context.Background()
	admin, err := NewAdmin(rdb, "d")
	if err != nil {
		t.Fatal(err)
	}
	policy := DownstreamPolicy{
		Defaults: Policy{Rate: buckets.PerSecond(1), Depth: 4},
		Admit:    rules(t, "fixed_window 3/d name=each", "fixed_window 5/d name=all per=downstream"),
	}
	if _, err := admin.Apply(ctx, policy, nil); err != nil {
		t.Fatal(err)
	}
	stands, err := admin.Downstream(ctx)
	if err != nil || fmt.Sprint(stands.Admit) != fmt.Sprint(policy.Admit) {
		t.Fatalf("rules %v, %v, want %v", stands.Admit, err, policy.Admit)
	}
	c, err := NewClient(rdb, "d", ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	offer := func(tenant, id string) Result {
		t.Helper()
		r, err := c.Offer(ctx, Spec{Tenant: tenant, ID: id, Type: "x"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for i, step := range []struct {
		tenant, id string
		status     Status
		refusedBy  string
		left       int64 // what all rules together leave
	}{
		{"a", "1", Accepted, "", 2},
		{"a", "2", Accepted, "", 1},
		{"a", "2", Accepted, "", -1}, // known already: the rules are not asked
		{"a", "3", Accepted, "", 0},
		{"a", "4", Refused, "each", 0}, // and takes nothing from the other rule
		{"b", "1", Accepted, "", 1},
		{"b", "2", Accepted, "", 0},
		{"b", "3", Refused, "all", 0}, // and takes nothing from the tenant's own
	} {
		r := offer(step.tenant, step.id)
		if r.Status != step.status {
			t.Fatalf("step %d: %+v, want %v", i, r, step.status)
		}
		if step.left < 0 {
			if r.Admission != nil {
				t.Errorf("step %d: rules were asked: %+v", i, r.Admission)
			}
			continue
		}
		if r.Admission == nil || r.Admission.Refused != step.refusedBy || r.Admission.Remaining != step.left {
			t.Errorf("step %d: %+v, want refused by %q, %d left", i, r.Admission, step.refusedBy, step.left)
		}
		if step.status == Refused && (r.Reason != RefusedLimited || r.RetryAfter <= 0 || r.RetryAfter > 24*time.Hour) {
			t.Errorf("step %d: reason %q, retry after %v", i, r.Reason, r.RetryAfter)
		}
	}
}

// A job that a full bucket refuses takes no token, and a job that the rules refuse leaves nothing
// behind.
func TestRefusedTakesNothing(t *testing.T) {
	rdb := redistest.Open(t)
	ctx := context.Background()
	admin, _ := NewAdmin(rdb, "d")
	if _, err := admin.Apply(ctx, DownstreamPolicy{
		Defaults: Policy{Rate: buckets.Rate{Events: 1, Period: time.Hour}, Depth: 2},
		Admit:    rules(t, "token_bucket 3/d burst 3"),
	}, nil); err != nil {
		t.Fatal(err)
	}
	c, _ := NewClient(rdb, "d", ClientConfig{})
	for i := range 6 {
		r, err := c.Offer(ctx, Spec{Type: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if i >= 2 && r.Reason != RefusedFull {
			t.Errorf("offer %d: %+v, want a full bucket", i, r)
		}
	}
	if err := admin.SetTenant(ctx, DefaultName, Policy{Depth: 10}); err != nil {
		t.Fatal(err)
	}
	outcomes := c.OfferMany(ctx, []Spec{{Type: "x"}, {Type: "x"}})
	if r := outcomes[0].Result; r.Status != Accepted || r.Admission == nil || r.Admission.Remaining != 0 {
		t.Errorf("the third token is gone: %+v %v", r, outcomes[0].Err)
	}
	keys, _ := rdb.Keys(ctx, "*").Result()
	if r := outcomes[1].Result; r.Reason != RefusedLimited || r.Admission == nil || r.Admission.Refused == "" {
		t.Errorf("a fourth was granted: %+v %v", r, outcomes[1].Err)
	}
	if r, err := c.Offer(ctx, Spec{Type: "x", ID: "named"}); err != nil || r.Reason != RefusedLimited {
		t.Errorf("%+v, %v", r, err)
	}
	if after, _ := rdb.Keys(ctx, "*").Result(); len(after) != len(keys) {
		t.Errorf("keys %v, before %v", after, keys)
	}
}

// Rules that a queue cannot keep are refused, and nothing is set.
func TestAdmissionInvalid(t *testing.T) {
	for _, text := range []string{
		"fixed_window 3/d per=global",
		"heavy share=20% then token_bucket 10/s burst 10",
	} {
		if err := (DownstreamPolicy{Admit: rules(t, text)}).Validate(); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
