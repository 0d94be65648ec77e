package shaper

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// What is read back is what was set, in every field.
func TestPoliciesRoundTrip(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	tenant := Policy{Rate: rate(3, 333333*time.Microsecond), Depth: 2, Weight: 3, OnFull: Block, MaxInFlight: 4, MaxAttempts: 5, MaxThrottles: 6,
		Backoff: Backoff{time.Second, time.Minute}, Timeout: 6 * time.Second, MaxWait: -1, Retention: 7 * time.Minute, MaxEnds: 14}
	ds := DownstreamPolicy{Rate: rate(1, 90*time.Second), Spacing: SharedSpacing, MaxInFlight: 8, UnknownTenants: RefuseUnknown, Tolerance: 9 * time.Millisecond,
		Lead: 10 * time.Millisecond, MaxLead: 200 * time.Millisecond, Lease: 11 * time.Second, MaxCrashes: 12, MaxEnds: 15, DepartureLog: 13, Defaults: tenant}
	w.setDownstream(ds)
	w.set("a", tenant)
	if got, err := w.admin.Downstream(t.Context()); err != nil || !reflect.DeepEqual(got, ds) {
		t.Errorf("downstream %+v, %v; want %+v", got, err, ds)
	}
	if got, err := w.admin.Tenant(t.Context(), "a"); err != nil || got.Set != tenant || got.Effective != tenant || !got.Known {
		t.Errorf("tenant %+v, %v; want %+v", got, err, tenant)
	}
}

func TestStatsAndLists(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	ctx := t.Context()
	w.set("a", Policy{Rate: rate(1000, time.Second), MaxAttempts: 1})
	w.pool("p", 4)
	w.offers("a", 6)
	w.finish(w.start(), queue.Finish{Ending: queue.EndOK})
	w.finish(w.start(), queue.Finish{Ending: queue.EndError})
	w.start() // a3 runs
	w.pass(100 * milli)
	w.release(1) // a4 is out
	w.offer(Spec{Tenant: "a", ID: "later", Delay: time.Hour})
	w.offers("b", 1)
	w.set("idle", Policy{Weight: 2})
	w.must(w.admin.Pause(ctx, "b", time.Minute))
	w.pass(10 * second)

	s, err := w.admin.Stats(ctx, false)
	w.must(err)
	if s.Tenants != 3 || s.Busy != 2 || len(s.ByTenant) != 2 {
		t.Errorf("%d tenants, %d busy, %d listed; want 3, 2, 2", s.Tenants, s.Busy, len(s.ByTenant))
	}
	if s.Waiting != 3 || s.Delayed != 1 || s.Out != 1 || s.Running != 1 || s.Dead != 1 || s.Level() != 4 {
		t.Errorf("stats %+v", s)
	}
	if s.Oldest < 10*time.Second || s.Oldest > 11*time.Second {
		t.Errorf("the oldest waits for %v", s.Oldest)
	}
	want := Counters{Accepted: 8, Started: 2, Done: 1, Failed: 1, Dead: 1}
	if s.Counters != want {
		t.Errorf("counters %+v, want %+v", s.Counters, want)
	}
	all, err := w.admin.Tenants(ctx)
	w.must(err)
	if len(all) != 3 || all[1].Name != "b" || !all[1].Paused || all[1].PausedUntil.IsZero() || all[2].Name != "idle" || all[2].Set.Weight != 2 {
		t.Errorf("tenants %+v", all)
	}

	names := func(f JobFilter) (out []string) {
		l, err := w.admin.Jobs(ctx, "a", f)
		w.must(err)
		for _, j := range l {
			out = append(out, fmt.Sprint(j.ID, ":", j.State))
		}
		return out
	}
	for _, tc := range []struct {
		f    JobFilter
		want []string
	}{
		{JobFilter{}, []string{"a3:running", "a4:out", "a5:waiting", "a6:waiting", "later:delayed"}},
		{JobFilter{Limit: 3}, []string{"a3:running", "a4:out", "a5:waiting"}},
		{JobFilter{States: []State{StateDead, StateWaiting}}, []string{"a2:dead", "a5:waiting", "a6:waiting"}},
	} {
		if got := names(tc.f); !slices.Equal(got, tc.want) {
			t.Errorf("jobs by %+v: %v, want %v", tc.f, got, tc.want)
		}
	}
	if _, err := w.admin.Jobs(ctx, "a", JobFilter{States: []State{StateDone}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("listing done jobs: %v", err)
	}
	if j, err := w.admin.FindJob(ctx, "later"); err != nil || j.Tenant != "a" || j.Due.IsZero() {
		t.Errorf("FindJob: %+v, %v", j, err)
	}
	if j := w.job("a", "a6"); j.Position != 2 {
		t.Errorf("a6 has position %d, want 2", j.Position)
	}

	// Purge leaves jobs that are out or running, and Remove wants none to be left.
	if n, err := w.admin.Purge(ctx, "a"); n != 3 || err != nil {
		t.Errorf("purged %d, %v; want 3", n, err)
	}
	if err := w.admin.Remove(ctx, "a"); !errors.Is(err, ErrInvalid) {
		t.Errorf("removed a tenant with jobs: %v", err)
	}
	w.must(w.admin.Remove(ctx, "idle"))
	if l, err := w.admin.Names(ctx, false); err != nil || !slices.Equal(l, []string{"a", "b"}) {
		t.Errorf("names %v, %v", l, err)
	}
}

// A large purge ends all jobs, newest first, in batches.
func TestPurge(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Depth: 1000})
	for i := range 230 {
		s := Spec{Tenant: "a", ID: fmt.Sprint("j", i)}
		if i%2 == 0 {
			s.Delay = time.Hour
		}
		w.offer(s)
	}
	v, err := w.q.Run(t.Context(), queue.PurgeScript, "purge", "a")
	if n, _ := v.(int64); n != queue.Batch || err != nil {
		t.Errorf("one call purged %v, %v; want a batch", v, err)
	}
	if n, err := w.admin.Purge(t.Context(), "a"); n != 230-queue.Batch || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	if a, err := w.admin.Tenant(t.Context(), "a"); err != nil || a.Level() != 0 || a.Counters.Cancelled != 230 {
		t.Errorf("left %+v, %v", a, err)
	}
}

// A tenant that is removed and comes back does not start earlier for that.
func TestRemoveEarnsNoStart(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.setDownstream(DownstreamPolicy{Defaults: Policy{Rate: rate(1, 10*time.Second)}})
	w.pool("p", 1)
	w.set("a", Policy{Depth: 3})
	w.offers("a", 1)
	first := w.runNext()
	w.must(w.admin.Remove(t.Context(), "a"))
	w.offer(Spec{Tenant: "a", ID: "again"})
	if g := w.runNext(); g.Slot.Sub(first.Slot) < 10*time.Second {
		t.Errorf("a slot %v after the last one, want the interval, 10s", g.Slot.Sub(first.Slot))
	}
}

// An idle tenant without a policy of its own is forgotten in time, one with dead jobs stays.
func TestIdleTenantsAreForgotten(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	ctx := t.Context()
	w.pool("p", 1)
	w.offers("passing", 1)
	w.runNext()
	w.set("known", Policy{Depth: 3})
	w.offers("dead", 1)
	w.finish(w.start(), queue.Finish{Ending: queue.EndDead})
	ttl := func(tenant string) time.Duration { return w.rdb.PTTL(ctx, w.q.TenantKey(tenant)).Val() }
	if d := ttl("passing"); d < 24*time.Hour || d > 25*time.Hour {
		t.Errorf("an idle tenant is kept for %v", d)
	}
	if d := ttl("known"); d != -1 {
		t.Errorf("one with a policy for %v", d)
	}
	if d := ttl("dead"); d < 90*24*time.Hour {
		t.Errorf("one with dead jobs for %v, want as long as those are kept", d)
	}
	w.must(w.rdb.Del(ctx, w.q.TenantKey("passing")).Err())
	w.pass(25 * hour)
	_, err := w.q.Release(ctx, 0, ticketTTL, true, 0)
	w.must(err)
	if l, err := w.admin.Names(ctx, false); err != nil || !slices.Equal(l, []string{"dead", "known"}) {
		t.Errorf("names %v, %v", l, err)
	}
	w.must(w.rdb.Del(ctx, w.q.TenantKey("dead")).Err())
	w.pass(91 * 24 * hour)
	_, err = w.q.Release(ctx, 0, ticketTTL, true, 0)
	w.must(err)
	if keys := w.rdb.Keys(ctx, "*:dead").Val(); len(keys) > 0 {
		t.Errorf("a tenant that is forgotten left %v behind", keys)
	}
}
