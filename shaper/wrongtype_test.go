package shaper

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// If a value of another kind is under one of our keys, every call that meets it names the key and
// what ought to be there.
func TestWrongType(t *testing.T) {
	rdb := redistest.Start(t).Client()
	ctx := t.Context()
	met := map[string]bool{}
	first := newWorld(t, rdb).q
	for _, k := range first.Kept("a") {
		w := newWorld(t, rdb)
		w.offers("a", 2)
		w.pool("p", 1)
		key := strings.Replace(k.Key, first.Prefix, w.q.Prefix, 1)
		w.must(rdb.Del(ctx, key).Err())
		w.must(rdb.Set(ctx, key, "what is this", 0).Err())
		for name, call := range map[string]func() error{
			"offer": func() error { _, err := w.client.Offer(ctx, Spec{Tenant: "a", Type: "x"}); return err },
			"many": func() error {
				return w.client.OfferMany(ctx, []Spec{{Tenant: "a", Type: "x"}, {Tenant: "b", Type: "x"}})[0].Err
			},
			"find":   func() error { _, err := w.client.Find(ctx, "a", "a1"); return err },
			"cancel": func() error { _, err := w.client.Cancel(ctx, "a", "a2"); return err },
			"release": func() error {
				_, err := w.q.Release(ctx, 10, ticketTTL, false, 0)
				return err
			},
			"beat":   func() error { _, err := w.gate.Beat(ctx, "p", 1, 0, nil); return err },
			"stats":  func() error { _, err := w.admin.Stats(ctx, true); return err },
			"policy": func() error { return w.admin.SetTenant(ctx, "a", Policy{Depth: 3}) },
			"apply": func() error {
				_, err := w.admin.Apply(ctx, DownstreamPolicy{}, map[string]Policy{"a": {Depth: 4}})
				return err
			},
			"look": func() error { _, err := w.admin.LookAtConfig(ctx, "digest", time.Second); return err },
			"jobs": func() error { _, err := w.admin.Jobs(ctx, "a", JobFilter{}); return err },
			"dead": func() error { _, err := w.admin.Dead(ctx, "a", 10); return err },
			"log":  func() error { return w.admin.DepartureLog(ctx, 0, func(LogEntry) error { return nil }) },
		} {
			err := call()
			if err == nil || errors.Is(err, ErrNotFound) {
				continue // it did not meet it
			}
			met[key] = true
			if text := err.Error(); !errors.Is(err, ErrStore) || !strings.Contains(text, "key "+key+" holds") || !strings.Contains(text, "want a "+k.Kind) || !strings.Contains(text, "WRONGTYPE") {
				t.Errorf("%s: %v; want an error that names %s and what it should be", name, err, key)
			}
		}
		if !met[key] {
			t.Errorf("nothing meets %s", key)
		}
		w.must(rdb.FlushAll(context.WithoutCancel(ctx)).Err())
	}
}
