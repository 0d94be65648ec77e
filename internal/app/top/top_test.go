package top

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

// publisher makes a Publisher like that of another process.
func publisher(t *testing.T, rdb redis.UniversalClient) *Publisher {
	t.Helper()
	p, err := NewPublisher(rdb, []string{"d", "e"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What several processes saw is added up; what one of them has not seen counts as nothing.
func TestSum(t *testing.T) {
	rdb := redistest.Open(t)
	a, b, idle := publisher(t, rdb), publisher(t, rdb), publisher(t, rdb)
	for range 3 {
		a.Hitters("d").Offer("acme")
	}
	a.Hitters("d").Refuse("acme")
	b.Hitters("d").Offer("acme")
	for range 5 {
		b.Hitters("d").Offer("globex")
	}
	a.Hitters("e").Offer("elsewhere")
	for _, p := range []*Publisher{a, b, idle} {
		p.publish(t.Context())
	}
	got, err := Read(t.Context(), rdb, "d")
	want := "{2 {9 [{globex 5} {acme 4}]} {1 [{acme 1}]} 2}"
	if err != nil || fmt.Sprint(got) != want {
		t.Fatalf("%v, %v, want %s", got, err, want)
	}
	if got.Cut(1); len(got.Offers.Tenants) != 1 || got.Offers.All != 9 {
		t.Errorf("cut to one: %v", got)
	}

	// A process that stops removes its snapshot; one that is killed is forgotten.
	a.Stop()
	a.Stop()
	if got, err := Read(t.Context(), rdb, "d"); err != nil || got.Processes != 1 || got.Offers.All != 6 {
		t.Errorf("one has stopped: %v, %v", got, err)
	}
	if ttl := rdb.PTTL(t.Context(), snapshotKey("d", b.process)).Val(); ttl <= 0 || ttl > fresh {
		t.Errorf("a snapshot lives for %v", ttl)
	}
	rdb.Set(t.Context(), snapshotKey("d", b.process), "rubbish", 0)
	if got, err := Read(t.Context(), rdb, "d"); err != nil || got.Processes != 0 {
		t.Errorf("one cannot be read: %v, %v", got, err)
	}
	rdb.Del(t.Context(), snapshotKey("d", b.process))
	if got, err := Read(t.Context(), rdb, "d"); err != nil || got.Processes != 0 {
		t.Errorf("nobody is there: %v, %v", got, err)
	}
	if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("left: %v", keys)
	}
}

func TestStartPublishes(t *testing.T) {
	rdb := redistest.Open(t)
	p := publisher(t, rdb)
	p.Start(t.Context())
	defer p.Stop()
	p.Hitters("d").Offer("acme")
	for deadline := time.Now().Add(testenv.Patience); ; time.Sleep(20 * time.Millisecond) {
		if got, err := Read(t.Context(), rdb, "d"); err == nil && got.Offers.All == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("never published")
		}
	}
}

// What others write under our keys cannot make Read fail, and does not show.
func FuzzSnapshot(f *testing.F) {
	for _, s := range []string{
		`{"processes":1,"offers":{"all":3,"tenants":[{"tenant":"acme","count":3}]},"refusals":{"all":0,"tenants":[]},"max_error":1}`,
		`{"processes":-5,"offers":{"all":-1,"tenants":[{"tenant":"\u001b[2J","count":-9223372036854775808}]},"max_error":-1}`,
		`{"offers":{"tenants":null}}`, `[]`, `null`, `{`, `"x"`, `{"offers":{"all":9223372036854775807,"tenants":[{"tenant":"a","count":9223372036854775807}]}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		one, err := readSnapshot(text)
		if err != nil {
			return
		}
		sum := Top{}
		sum.add(one)
		sum.add(one)
		sum.Cut(3)
		for _, l := range []List{sum.Offers, sum.Refusals} {
			if l.All < 0 {
				t.Errorf("%d offers in all, of %q twice", l.All, text)
			}
			for _, tenant := range l.Tenants {
				if shaper.ValidName("tenant", tenant.Name) != nil || tenant.Count < 0 {
					t.Errorf("%+v, of %q twice", tenant, text)
				}
			}
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	p := publisher(t, redistest.Open(t))
	p.Stop()
}
