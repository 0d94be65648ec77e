package shaper

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// runs lets a scheduler and workers go on for so long, and returns the ids of what started, which
// ends well.
func (w *world) runs(us int64) (started []string) {
	w.t.Helper()
	for end := w.now + us; w.now < end; w.pass(second / 4) {
		for name, places := range w.places {
			w.pool(name, places)
		}
		tickets, _, _ := w.release(20)
		for _, k := range tickets {
			if g, _ := w.enter(k, "p"); g != nil {
				started = append(started, g.ID)
				w.finish(g, queue.Finish{Ending: queue.EndOK})
			}
		}
	}
	return started
}

// bodies are the ids of a tenant's jobs that have not ended, sorted.
func (w *world) bodies(tenant string) []string {
	w.t.Helper()
	ids, err := w.rdb.HKeys(w.t.Context(), w.q.JobsKey(tenant)).Result()
	w.must(err)
	slices.Sort(ids)
	return ids
}

// garbage is what no version writes to a field that holds a number.
var garbage = []string{"1/2", "", "ten", "nan", "1e300", "-inf"}

// A field of a tenant that cannot be read parks that tenant alone: it keeps its jobs, shows the
// field, and goes on with all of them once the field is set right.
func TestUnreadableTenant(t *testing.T) {
	testenv.Long(t, "garbles every field of a tenant")
	t.Parallel()
	rdb := redistest.Open(t)
	bad := map[string][]string{"p:rate": {"10/1000000/3", "10", "0/1", "1/0", "ten"}, "p:on_full": {"burn", "1"}}
	for _, f := range policyFields(DefaultPolicy()) {
		if strings.HasPrefix(f, "p:") && bad[f] == nil {
			bad[f] = append(garbage, "0")
		}
	}
	bad["p:wait"] = garbage // 0 is none
	states := []string{"ver", "started", "done", "row", "back", "took", "by_time", "slot", "next", "rem", "seen", "out", "run", "vt", "until"}
	for _, f := range states {
		bad[f] = garbage
	}
	n := 0
	for _, field := range slices.Sorted(maps.Keys(bad)) {
		for _, value := range bad[field] {
			n++
			w := newWorld(t, rdb)
			ctx := t.Context()
			policy := DefaultPolicy()
			policy.Rate, policy.Depth, policy.OnFull, policy.MaxWait, policy.MaxAttempts = rate(4, time.Second), 7, DropOldest, time.Hour, 1
			w.set("a", policy)
			w.set("b", policy)
			w.pool("p", 8)
			w.offers("a", 7)
			w.offers("b", 3)
			first := w.start()
			for first.Tenant != "a" {
				w.finish(first, queue.Finish{Ending: queue.EndOK})
				first = w.start()
			}
			before := w.bodies("a")
			right, err := rdb.HGet(ctx, w.q.TenantKey("a"), field).Result()
			if err != nil {
				right = "0" // as a field of the state that was not written yet reads
			}
			w.must(rdb.HSet(ctx, w.q.TenantKey("a"), field, value).Err())
			name := fmt.Sprintf("%s=%q", field, value)

			if became, _ := w.finish(first, queue.Finish{Ending: queue.EndError, Delay: time.Second}); became != "retry" && became != "dead" {
				t.Errorf("%s: a start that failed became %q", name, became)
			}
			w.pass(2 * 3600 * second) // longer than a job may wait
			started := w.runs(3 * second)
			if slices.ContainsFunc(started, func(id string) bool { return id[0] == 'a' }) || len(started) == 0 && len(w.bodies("b")) > 0 {
				t.Errorf("%s: started %v, want b alone", name, started)
			}
			if after := w.bodies("a"); !slices.Equal(after, before) {
				t.Errorf("%s: jobs %v, want %v as before", name, after, before)
			}
			if r := w.offer(Spec{Tenant: "a", ID: "late"}); r.Reason != RefusedParked || r.RetryAfter <= 0 {
				t.Errorf("%s: an offer: %+v, want %s", name, r, RefusedParked)
			}
			if r := w.offer(Spec{Tenant: "b", ID: "b9"}); r.Status != Accepted {
				t.Errorf("%s: an offer to another tenant: %+v", name, r)
			}
			shown := strings.TrimPrefix(field, "p:")
			info, err := w.admin.Tenant(ctx, "a")
			if w.must(err); !strings.Contains(info.Parked, fmt.Sprintf("%q", value)) || shown == "weight" && !strings.HasPrefix(info.Parked, shown) {
				t.Errorf("%s: shown as %q", name, info.Parked)
			}
			faults, err := w.admin.Books(ctx, false)
			if w.must(err); !slices.ContainsFunc(faults, func(f BookFault) bool { return f.Kind == "parked" && f.Tenant == "a" && f.Of == info.Parked }) {
				t.Errorf("%s: the books say %v", name, faults)
			}

			if strings.HasPrefix(field, "p:") {
				w.set("a", policy)
			} else {
				w.must(rdb.HSet(ctx, w.q.TenantKey("a"), field, right).Err())
			}
			w.set("a", Policy{MaxWait: -1})
			if _, err = w.admin.Books(ctx, true); err != nil { // counts that were right before a job ended
				t.Error(err)
			}
			if n, _, err := w.admin.RequeueDead(ctx, "a"); err != nil || n > 1 {
				t.Errorf("%s: %d were dead (%v)", name, n, err)
			}
			for i := 0; len(w.bodies("a")) > 0 && i < 20; i++ {
				w.runs(second)
			}
			if left := w.bodies("a"); len(left) > 0 {
				t.Errorf("%s: set right, and %v have not started", name, left)
			}
			if info, err = w.admin.Tenant(ctx, "a"); err != nil || info.Parked != "" {
				t.Errorf("%s: set right, and shown as parked, %q (%v)", name, info.Parked, err)
			}
			if faults, err = w.admin.Books(ctx, false); err != nil || len(faults) > 0 {
				t.Errorf("%s: set right, and the books are wrong: %v (%v)", name, faults, err)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d values tried", n)
	}
}

// A parked tenant goes on by itself once the field is right again, and at once where its policy is
// set.
func TestParkedGoesOn(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	for _, byHand := range []bool{true, false} {
		w := newWorld(t, rdb)
		w.set("a", Policy{Rate: rate(1000, time.Second), Weight: 3})
		w.pool("p", 8)
		w.offers("a", 3)
		w.must(rdb.HSet(t.Context(), w.q.TenantKey("a"), "p:weight", "1/2").Err())
		if started := w.runs(5 * second); len(started) > 0 {
			t.Fatalf("parked, and started %v", started)
		}
		if byHand {
			w.must(rdb.HSet(t.Context(), w.q.TenantKey("a"), "p:weight", "3").Err())
			w.pass(second)
		} else {
			w.set("a", Policy{Weight: 3})
		}
		tickets, _, _ := w.release(10)
		if len(tickets) == 0 {
			t.Errorf("by hand %v: set right, and nothing leaves", byHand)
		}
		for _, k := range tickets {
			if g, _ := w.enter(k, "p"); g != nil {
				w.finish(g, queue.Finish{Ending: queue.EndOK})
			}
		}
		w.runs(5 * second)
		if left := w.bodies("a"); len(left) > 0 {
			t.Errorf("by hand %v: %v have not started", byHand, left)
		}
	}
}

// After many years at a high rate nothing is parked: virtual times are the largest numbers.
func TestOldIsNotUnreadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 8)
	w.offers("a", 3)
	const vt = 1_000_000_000 * 50 * 365 * 86400
	w.must(w.rdb.HSet(t.Context(), w.q.DownstreamKey(), "vt", vt).Err())
	w.must(w.rdb.HSet(t.Context(), w.q.TenantKey("a"), "vt", vt).Err())
	if started := w.runs(5 * second); len(started) != 3 {
		t.Errorf("started %v, want all three", started)
	}
}

// A field of the downstream that cannot be read parks the downstream: every call says which it is,
// and changes nothing, until it is set right.
func TestUnreadableDownstream(t *testing.T) {
	testenv.Long(t, "garbles every field of a downstream")
	t.Parallel()
	rdb := redistest.Open(t)
	bad := map[string][]string{"schema": {"2.0", "10.1", "1", "1.", "x"}, "rate": {"10/1000000/3", "10"}, "unknown": {"burn"},
		"p:rate": {"10/1000000/3"}, "p:on_full": {"burn"}}
	for i, all := 0, downstreamFields(DownstreamPolicy{}.WithDefaults()); i < len(all); i += 2 {
		if f := all[i]; bad[f] == nil && f != "log" && f != admitField { // a log is off, and admission is asked by offers alone
			bad[f] = garbage
		}
	}
	for _, f := range []string{"epoch", "clock", "started", "done", "back", "healed", "spared_from", "spared_until", "places", "alive", "slot", "next", "rem",
		"seen", "out", "run", "vt", "until"} {
		bad[f] = garbage
	}
	for _, field := range slices.Sorted(maps.Keys(bad)) {
		for _, value := range bad[field] {
			w := newWorld(t, rdb)
			ctx := t.Context()
			w.setDownstream(DownstreamPolicy{Rate: rate(100, time.Second), Defaults: Policy{Depth: 10, MaxWait: time.Hour}})
			w.pool("p", 8)
			w.offers("a", 5)
			w.offers("b", 5)
			g := w.start()
			tickets, _, _ := w.release(1)
			right, err := rdb.HGet(ctx, w.q.DownstreamKey(), field).Result()
			w.must(rdb.HSet(ctx, w.q.DownstreamKey(), field, value).Err())
			name := fmt.Sprintf("%s=%q", field, value)
			before := w.dump()
			calls := map[string]func() error{
				"offer":   func() error { _, err := w.client.Offer(ctx, Spec{Tenant: "new", Type: "x"}); return err },
				"release": func() error { _, err := w.q.Release(ctx, 10, time.Microsecond, false, 0); return err },
				"finish": func() error {
					_, err := w.gate.Finish(ctx, g, queue.Finish{Ending: queue.EndOK})
					return err
				},
				"cancel": func() error { _, err := w.client.Cancel(ctx, "a", "a5"); return err },
				"purge":  func() error { _, err := w.admin.Purge(ctx, "a"); return err },
				"pause":  func() error { return w.admin.Pause(ctx, "a", 0) },
				"books":  func() error { _, err := w.admin.Books(ctx, true); return err },
			}
			if len(tickets) > 0 {
				calls["gate"] = func() error { _, _, err := w.gate.Enter(ctx, tickets[0], "p.1"); return err }
			}
			if field == "schema" {
				calls["beat"] = func() error { _, err := w.gate.Beat(ctx, "p", 9, time.Hour, nil); return err }
				calls["policy"] = func() error { return w.admin.SetTenant(ctx, "a", Policy{Depth: 3}) }
				calls["common policy"] = func() error { return w.admin.SetDownstream(ctx, DownstreamPolicy{MaxInFlight: 3}) }
				calls["apply"] = func() error { _, err := w.admin.Apply(ctx, DownstreamPolicy{}, nil); return err }
				calls["find"] = func() error { _, err := w.client.Find(ctx, "a", "a5"); return err }
				calls["stats"] = func() error { _, err := w.admin.Stats(ctx, true); return err }
				calls["shared offer"] = func() error { _, err := w.client.Offer(ctx, Spec{Tenant: "a", Type: "x"}); return err }
			}
			for what, call := range calls {
				var unreadable *UnreadableError
				if err := call(); !errors.As(err, &unreadable) || !errors.Is(err, ErrStore) || unreadable.Field != field || unreadable.Value != value ||
					!strings.Contains(err.Error(), w.q.Downstream) {
					t.Errorf("%s: %s: %v", name, what, err)
				}
			}
			if after := w.dump(); after != before {
				t.Errorf("%s: refused, and changed\n%s\nto\n%s", name, before, after)
			}
			if field != "schema" {
				if s, err := w.admin.Stats(ctx, true); err != nil || len(s.ByTenant) != 2 || !strings.Contains(s.ByTenant[0].Parked, fmt.Sprintf("%q", value)) {
					t.Errorf("%s: stats %+v, %v", name, s.ByTenant, err)
				}
			}
			if err != nil {
				w.must(rdb.HDel(ctx, w.q.DownstreamKey(), field).Err())
			} else {
				w.must(rdb.HSet(ctx, w.q.DownstreamKey(), field, right).Err())
			}
			if became, _ := w.finish(g, queue.Finish{Ending: queue.EndOK}); became != "done" {
				t.Errorf("%s: set right, and what ran became %q", name, became)
			}
			w.runs(8 * second)
			if a, b := w.bodies("a"), w.bodies("b"); len(a)+len(b) > 0 {
				t.Errorf("%s: set right, and %v %v have not started", name, a, b)
			}
		}
	}
}

// Fields that nothing depends on park nobody: with any value in them all goes on, and no job is
// lost.
func TestUnreadableRest(t *testing.T) {
	testenv.Long(t, "garbles what else there is")
	t.Parallel()
	rdb := redistest.Open(t)
	for key, fields := range map[string][]string{
		"d":     {"ver", "rid", "ended", "refile", "blocked", "log", "config_gen", "accepted", "failed", "dead", "lost_tickets"},
		"t:a":   {"accepted", "failed", "dead", "busy", "own_wait", "r", "due"},
		"pools": {"p", "p:n", "gone", "gone:n"},
	} {
		for _, field := range fields {
			for _, value := range garbage {
				w := newWorld(t, rdb)
				ctx := t.Context()
				w.set("a", Policy{Depth: 20, MaxAttempts: 1})
				w.pool("p", 4)
				w.offers("a", 4)
				g := w.start()
				w.must(rdb.HSet(ctx, w.q.Prefix+key, field, value).Err())
				name := fmt.Sprintf("%s %s=%q", key, field, value)
				w.finish(g, queue.Finish{Ending: queue.EndError})
				for i := range 4 {
					w.offer(Spec{Tenant: "a", ID: fmt.Sprint("n", i)})
				}
				if _, err := w.admin.Apply(ctx, DownstreamPolicy{MaxInFlight: 5}, map[string]Policy{"a": {Depth: 30, MaxAttempts: 1}}); err != nil {
					t.Errorf("%s: apply: %v", name, err)
				}
				if _, err := w.admin.Stats(ctx, true); err != nil {
					t.Errorf("%s: stats: %v", name, err)
				}
				w.runs(4 * second)
				_, err := w.admin.Books(ctx, true)
				w.must(err)
				w.runs(4 * second)
				if left := w.bodies("a"); len(left) != 1 || w.job("a", left[0]).State != StateDead {
					t.Errorf("%s: left %v, want the dead one", name, left)
				}
			}
		}
	}
}

// An admission rule that cannot be read refuses offers, and holds up nothing that waits.
func TestUnreadableAdmission(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	admit := rules(t, "fixed_window 100/d", "token_bucket 100/s")
	for _, value := range []string{"burn", "a\ttenant\ttext\tno-such\t1", "a\ttenant\ttext\ttoken-bucket\tten"} {
		w := newWorld(t, rdb)
		w.setDownstream(DownstreamPolicy{Admit: admit})
		w.pool("p", 4)
		w.offers("a", 3)
		w.must(rdb.HSet(t.Context(), w.q.DownstreamKey(), "admit", value).Err())
		var unreadable *UnreadableError
		if _, err := w.client.Offer(t.Context(), Spec{Tenant: "a", Type: "x"}); !errors.As(err, &unreadable) || unreadable.Field != "admit" || unreadable.Value != value {
			t.Errorf("%q: %v", value, err)
		}
		w.runs(2 * second)
		if left := w.bodies("a"); len(left) > 0 {
			t.Errorf("%q: %v have not started", value, left)
		}
		w.setDownstream(DownstreamPolicy{Admit: admit})
		w.offers("b", 3)
	}
}
