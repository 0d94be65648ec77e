package shaper

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// everything returns all keys of the test's Redis with their values.
func (w *world) everything() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	keys, err := w.rdb.Keys(w.t.Context(), "*").Result()
	w.must(err)
	for _, key := range keys {
		v, err := w.rdb.Dump(w.t.Context(), key).Result()
		w.must(err)
		all[key] = v
	}
	return all
}

// TestUnseen asks everything that an operator may ask about a tenant, and then a downstream, that
// was never seen: that is an error which says which of them it is, and changes nothing. Setting a
// policy makes it known, and then it is no error.
func TestUnseen(t *testing.T) {
	w := newWorld(t, redistest.Start(t).Client())
	ctx := t.Context()
	second := func(_ any, err error) error { return err }
	third := func(_, _ any, err error) error { return err }
	tenant := map[string]func(a *Admin, tenant string) error{
		"Pause":              func(a *Admin, s string) error { return a.Pause(ctx, s, time.Minute) },
		"Pause, no end":      func(a *Admin, s string) error { return a.Pause(ctx, s, 0) },
		"Resume":             func(a *Admin, s string) error { return a.Resume(ctx, s) },
		"Purge":              func(a *Admin, s string) error { return second(a.Purge(ctx, s)) },
		"Dead":               func(a *Admin, s string) error { return second(a.Dead(ctx, s, 10)) },
		"RequeueDead":        func(a *Admin, s string) error { return third(a.RequeueDead(ctx, s)) },
		"RequeueDead, named": func(a *Admin, s string) error { return third(a.RequeueDead(ctx, s, "id")) },
		"RemoveDead":         func(a *Admin, s string) error { return second(a.RemoveDead(ctx, s)) },
		"RemoveDead, named":  func(a *Admin, s string) error { return second(a.RemoveDead(ctx, s, "id")) },
		"Tenant":             func(a *Admin, s string) error { return second(a.Tenant(ctx, s)) },
		"Jobs":               func(a *Admin, s string) error { return second(a.Jobs(ctx, s, JobFilter{})) },
		"Remove":             func(a *Admin, s string) error { return a.Remove(ctx, s) }, // last: see below
	}
	all := map[string]func(a *Admin) error{
		"Pause":        func(a *Admin) error { return a.Pause(ctx, "", time.Minute) },
		"Resume":       func(a *Admin) error { return a.Resume(ctx, "") },
		"Downstream":   func(a *Admin) error { return second(a.Downstream(ctx)) },
		"Stats":        func(a *Admin) error { return second(a.Stats(ctx, true)) },
		"Stats, busy":  func(a *Admin) error { return second(a.Stats(ctx, false)) },
		"Names":        func(a *Admin) error { return second(a.Names(ctx, false)) },
		"Tenants":      func(a *Admin) error { return second(a.Tenants(ctx)) },
		"DepartureLog": func(a *Admin) error { return a.DepartureLog(ctx, 0, func(LogEntry) error { return nil }) },
	}
	unseen := func(call string, err error, want UnseenError, before map[string]string) {
		t.Helper()
		var got *UnseenError
		if !errors.As(err, &got) || *got != want || !errors.Is(err, ErrNotFound) || errors.Is(err, ErrStore) {
			t.Errorf("%s: %v, want %v", call, err, &want)
		}
		if after := w.everything(); !maps.Equal(before, after) {
			t.Errorf("%s changed %v to %v", call, before, after)
		}
	}
	other, err := NewAdmin(w.rdb, "never")
	w.must(err)
	w.set("known", Policy{Depth: 3})
	before := w.everything()
	for name, call := range tenant {
		unseen(name, call(w.admin, "acm"), UnseenError{w.q.Downstream, "acm"}, before)
		unseen(name+" of no downstream", call(other, "known"), UnseenError{"never", ""}, before)
	}
	for name, call := range all {
		unseen(name, call(other), UnseenError{"never", ""}, before)
	}

	// A tenant with a policy of its own, one that offered a job, and one whose jobs have all ended.
	w.offers("offered", 1)
	w.offers("ended", 1)
	if n, err := w.admin.Purge(ctx, "ended"); n != 1 || err != nil {
		t.Fatalf("purged %d, %v", n, err)
	}
	for _, name := range []string{"known", "offered", "ended"} {
		for call, f := range tenant {
			if call != "Remove" {
				w.must(f(w.admin, name))
			}
		}
		w.must(tenant["Remove"](w.admin, name))
		w.must(tenant["Remove"](w.admin, name)) // a repeated call whose first answer was lost
		before := w.everything()
		for call, f := range tenant {
			if call != "Remove" {
				unseen(call+" after Remove", f(w.admin, name), UnseenError{w.q.Downstream, name}, before)
			}
		}
	}
	for _, f := range all {
		w.must(f(w.admin))
	}
	w.must(other.SetTenant(ctx, "known", Policy{Depth: 3}))
	for _, f := range all {
		w.must(f(other))
	}
}
