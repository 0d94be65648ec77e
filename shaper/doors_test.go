package shaper

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// An invalid name is refused at every door, before Redis is asked anything: it could reach other
// people's keys.
func TestNamesAtEveryDoor(t *testing.T) {
	rdb := redistest.Open(t)
	ctx := t.Context()
	client, err := NewClient(rdb, "d", ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := NewAdmin(rdb, "d")
	if err != nil {
		t.Fatal(err)
	}
	asked := &counter{}
	rdb.AddHook(asked)
	second := func(_ any, err error) error { return err }
	third := func(_, _ any, err error) error { return err }
	doors := map[string]func(name string) error{
		"NewClient":    func(s string) error { return second(NewClient(rdb, s, ClientConfig{})) },
		"NewAdmin":     func(s string) error { return second(NewAdmin(rdb, s)) },
		"NewScheduler": func(s string) error { return second(NewScheduler(rdb, s, nil, SchedulerConfig{})) },

		"Offer, tenant": func(s string) error { return second(client.Offer(ctx, Spec{Tenant: s, Type: "x"})) },
		"Offer, id":     func(s string) error { return second(client.Offer(ctx, Spec{Tenant: "a", ID: s, Type: "x"})) },
		"OfferMany":     func(s string) error { return client.OfferMany(ctx, []Spec{{Tenant: s, Type: "x"}})[0].Err },
		"Enqueue":       func(s string) error { return second(client.Enqueue(ctx, s, asynq.NewTask("x", nil))) },
		"Enqueue, id": func(s string) error {
			return second(client.Enqueue(ctx, "a", asynq.NewTask("x", nil), asynq.TaskID(s)))
		},
		"Find, tenant":   func(s string) error { return second(client.Find(ctx, s, "a")) },
		"Find, id":       func(s string) error { return second(client.Find(ctx, "a", s)) },
		"Cancel, tenant": func(s string) error { return second(client.Cancel(ctx, s, "a")) },
		"Cancel, id":     func(s string) error { return second(client.Cancel(ctx, "a", s)) },
		"Wait, tenant":   func(s string) error { return second(client.Wait(ctx, s, "a")) },
		"Wait, id":       func(s string) error { return second(client.Wait(ctx, "a", s)) },

		"Apply": func(s string) error {
			return second(admin.Apply(ctx, DownstreamPolicy{}, map[string]Policy{s: {}}))
		},
		"SetTenant":       func(s string) error { return admin.SetTenant(ctx, s, Policy{Depth: 1}) },
		"Pause":           func(s string) error { return admin.Pause(ctx, s, 0) },
		"Resume":          func(s string) error { return admin.Resume(ctx, s) },
		"Purge":           func(s string) error { return second(admin.Purge(ctx, s)) },
		"Remove":          func(s string) error { return admin.Remove(ctx, s) },
		"Dead":            func(s string) error { return second(admin.Dead(ctx, s, 1)) },
		"RequeueDead":     func(s string) error { return third(admin.RequeueDead(ctx, s)) },
		"RequeueDead, id": func(s string) error { return third(admin.RequeueDead(ctx, "a", s)) },
		"RemoveDead":      func(s string) error { return second(admin.RemoveDead(ctx, s)) },
		"RemoveDead, id":  func(s string) error { return second(admin.RemoveDead(ctx, "a", s)) },
		"Tenant":          func(s string) error { return second(admin.Tenant(ctx, s)) },
		"Jobs":            func(s string) error { return second(admin.Jobs(ctx, s, JobFilter{})) },
		"FindJob":         func(s string) error { return second(admin.FindJob(ctx, s)) },
	}
	for door, open := range doors {
		for _, name := range []string{"", "a b", "a}b", "{", "*", "a:b", "a/b", "-a", ".a", "a\n", "a\x00", "ａ", "é", "\xff", strings.Repeat("x", 65), strings.Repeat("x", 1<<20)} {
			if name == "" && slices.Contains([]string{"Offer, tenant", "OfferMany", "Enqueue", "Offer, id", "Enqueue, id", "Pause", "Resume"}, door) {
				continue // means the default, one that is made up, or the whole downstream
			}
			if err := open(name); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s with %.20q: %v, want ErrInvalid", door, name, err)
			} else if len(err.Error()) > 400 {
				t.Errorf("%s: an error of %d bytes", door, len(err.Error()))
			}
		}
	}
	if n := asked.n.Load(); n > 0 {
		t.Errorf("Redis was asked %d times", n)
	}
}
