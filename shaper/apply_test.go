package shaper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// file is a configuration in which everything is n.
func file(n int, tenants ...string) (DownstreamPolicy, map[string]Policy) {
	named := map[string]Policy{}
	for _, name := range tenants {
		named[name] = Policy{Depth: n}
	}
	return DownstreamPolicy{MaxInFlight: n, Defaults: Policy{Depth: n}}, named
}

// What is applied last holds, by its content and not by a clock; only what is applied already
// leaves alone what was set by hand since.
func TestApply(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	ctx := t.Context()
	apply := func(n int, tenants ...string) Applied {
		t.Helper()
		p, named := file(n, tenants...)
		applied, err := w.admin.Apply(ctx, p, named)
		w.must(err)
		if applied.By != "" || applied.Digest == "" {
			t.Errorf("applied %+v", applied)
		}
		return applied
	}
	stands := func(when string, ds, a, b int) {
		t.Helper()
		d, err := w.admin.Downstream(ctx)
		w.must(err)
		ta, err := w.admin.Tenant(ctx, "a")
		w.must(err)
		tb, err := w.admin.Tenant(ctx, "b")
		w.must(err)
		if d.MaxInFlight != ds || ta.Effective.Depth != a || tb.Effective.Depth != b {
			t.Errorf("%s: downstream %d, a %d, b %d; want %d, %d, %d", when, d.MaxInFlight, ta.Effective.Depth, tb.Effective.Depth, ds, a, b)
		}
	}

	first := apply(11, "a", "b")
	stands("a configuration", 11, 11, 11)
	if first.Before != "" || len(first.Left) > 0 {
		t.Errorf("the first one: %+v", first)
	}

	w.set("a", Policy{Depth: 5})
	w.set("hand", Policy{Depth: 6})
	if again := apply(11, "b", "a"); again.Before != again.Digest || again.Digest != first.Digest {
		t.Errorf("the same content again: %+v", again)
	}
	stands("the same content after a change by hand", 11, 5, 11)

	if second := apply(22, "a", "b"); second.Before != first.Digest {
		t.Errorf("another content: %+v, want it after %s", second, first.Digest)
	}
	stands("another content", 22, 22, 22)
	w.pass(-hour)
	apply(11, "a", "b")
	stands("the first one again, after the clock stepped back", 11, 11, 11)

	if third := apply(33, "b"); !slices.Equal(third.Left, []string{"a"}) {
		t.Errorf("a left: %+v", third)
	}
	stands("a left", 33, 33, 33)
	for tenant, known := range map[string]bool{"a": false, "b": true, "hand": true} {
		if info, err := w.admin.Tenant(ctx, tenant); err != nil || info.Known != known {
			t.Errorf("%s is known: %v (%v), want %v", tenant, info.Known, err, known)
		}
	}
	if info, err := w.admin.Tenant(ctx, "hand"); err != nil || info.Set.Depth != 6 {
		t.Errorf("a tenant that no configuration ever named has a depth of %d (%v), want 6 as set by hand", info.Set.Depth, err)
	}

	// A tenant that leaves the configuration loses its policy and nothing else.
	w.set("b", Policy{Depth: 4})
	w.offers("b", 2)
	w.must(w.admin.Pause(ctx, "b", 0))
	apply(44)
	if info, err := w.admin.Tenant(ctx, "b"); err != nil || info.Waiting != 2 || !info.Paused || info.Set != (Policy{}) {
		t.Errorf("b left, and is %+v (%v); want two waiting, paused, and no policy", info, err)
	}
	if left := apply(55).Left; len(left) > 0 {
		t.Errorf("%v left twice", left)
	}

	// A tenant that was removed by hand is not made anew when it leaves the configuration.
	apply(66, "gone")
	w.must(w.admin.Remove(ctx, "gone"))
	w.must(w.rdb.Del(ctx, w.q.TenantKey("gone")).Err())
	apply(77)
	if n := w.rdb.Exists(ctx, w.q.TenantKey("gone")).Val(); n != 0 {
		t.Error("a tenant was made by leaving the configuration")
	}

	p, _ := file(88)
	if _, err := w.admin.Apply(ctx, p, map[string]Policy{"x": {Depth: -1}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an invalid tenant: %v", err)
	}
	stands("an invalid one changes nothing", 77, 77, 77)
}

// cut makes every call after the first n fail, as if the process had ended there.
type cut struct{ n int }

func (c *cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			if c.n--; c.n < 0 {
				cmd.SetErr(errors.New("cut off"))
				return cmd.Err()
			}
		}
		return next(ctx, cmd)
	}
}

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// After an Apply that ends after any of its steps, the next one, of the same content or another,
// has the same effect as if there had been none.
func TestApplyInParts(t *testing.T) {
	testenv.Long(t, "sets thousands of tenants")
	t.Parallel()
	server := redistest.Start(t)
	names := func(letter string) (l []string) {
		for i := range 3 * queue.Batch / 2 {
			l = append(l, fmt.Sprint(letter, i))
		}
		return l
	}
	for _, then := range []int{1, 2, 3} { // the content before, the one that is cut off, another
		for steps := 0; ; steps++ {
			rdb := server.Client()
			rdb.FlushAll(t.Context())
			admin, err := NewAdmin(rdb, "d")
			if err != nil {
				t.Fatal(err)
			}
			contents := map[int][]string{1: names("x"), 2: append(names("y"), "x3"), 3: {"y7"}}
			apply := func(admin *Admin, n int) error {
				p, named := file(n, contents[n]...)
				_, err := admin.Apply(t.Context(), p, named)
				return err
			}
			if err := apply(admin, 1); err != nil {
				t.Fatal(err)
			}
			broken, err := redisurl.Open(server.URL(), redisurl.Config{Hooks: []redis.Hook{&cut{steps}}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { broken.Close() })
			other, err := NewAdmin(broken, "d")
			if err != nil {
				t.Fatal(err)
			}
			whole := apply(other, 2) == nil
			if err := apply(admin, then); err != nil {
				t.Fatal(err)
			}
			stands(t, admin, then, contents[then])
			if whole {
				break
			}
			if steps > 20 {
				t.Fatal("never whole")
			}
		}
	}
}

// stands fails the test unless the configuration file(n, tenants…) holds, and nothing else.
func stands(t *testing.T, admin *Admin, n int, tenants []string) {
	t.Helper()
	d, err := admin.Downstream(t.Context())
	if err != nil || d.MaxInFlight != n {
		t.Errorf("the downstream has %d (%v), want %d", d.MaxInFlight, err, n)
	}
	all, err := admin.Tenants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, info := range all {
		if info.Known {
			known = append(known, info.Name)
		}
		if info.Effective.Depth != n {
			t.Errorf("%s has a depth of %d, want %d", info.Name, info.Effective.Depth, n)
		}
	}
	slices.Sort(known)
	if want := slices.Sorted(slices.Values(tenants)); !slices.Equal(known, want) {
		t.Errorf("%d: known are %d tenants, want %d", n, len(known), len(want))
	}
}

// Of configurations that are applied at the same time one holds as a whole, and whoever applied
// another is told.
func TestConfigsDoNotMix(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	admin, err := NewAdmin(rdb, "d")
	if err != nil {
		t.Fatal(err)
	}
	const kinds, each = 3, 2
	contents := make([][]string, kinds)
	for n := range contents {
		for i := range 4 * queue.Batch {
			if i%3 != n {
				contents[n] = append(contents[n], fmt.Sprint("t", i))
			}
		}
	}
	interrupted := 0
	for round := 0; round < 10 || interrupted == 0; round++ {
		var all sync.WaitGroup
		var mu sync.Mutex
		digests, by := map[string]int{}, map[int]string{}
		for i := range kinds * each {
			all.Go(func() {
				n := i % kinds
				p, named := file(n+1, contents[n]...)
				applied, err := admin.Apply(context.Background(), p, named)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				digests[applied.Digest] = n
				if applied.By != "" {
					by[n] = applied.By
					interrupted++
				}
			})
		}
		all.Wait()
		state, err := admin.LookAtConfig(t.Context(), "mine", time.Second)
		holds, known := digests[state.Holds]
		if err != nil || state.Partly || !known {
			t.Fatalf("%+v, %v", state, err)
		}
		stands(t, admin, holds+1, contents[holds])
		for n, digest := range by {
			if _, known := digests[digest]; !known || digests[digest] == n {
				t.Errorf("%d was interrupted by %q", n, digest)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// Daemons with different configurations learn of each other, and of which one holds; also when
// Redis has lost it.
func TestLookAtConfig(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	look := func(digest string, want ConfigState) {
		t.Helper()
		got, err := w.admin.LookAtConfig(t.Context(), digest, 10*time.Second)
		w.must(err)
		if got.Holds != want.Holds || got.Partly != want.Partly || !slices.Equal(got.Others, want.Others) {
			t.Errorf("%s sees %+v, want %+v", digest, got, want)
		}
	}
	look("one", ConfigState{})
	p, named := file(1)
	applied, err := w.admin.Apply(t.Context(), p, named)
	w.must(err)
	look("one", ConfigState{Holds: applied.Digest})
	w.pass(5 * second)
	look("two", ConfigState{Holds: applied.Digest, Others: []string{"one"}})
	look("one", ConfigState{Holds: applied.Digest, Others: []string{"two"}})
	w.pass(11 * second)
	look("one", ConfigState{Holds: applied.Digest})
	_, err = w.q.Run(t.Context(), queue.ConfigScript, "begin", "begin", "three", 0)
	w.must(err)
	look("one", ConfigState{Holds: "three", Partly: true})
	w.must(w.rdb.FlushDB(t.Context()).Err())
	look("one", ConfigState{})
}
