package buckets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func openMemory(t testing.TB, params Params, clock func() int64) settable {
	t.Helper()
	m, err := NewMemory(params, MemoryConfig{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemory(t *testing.T) { runSuite(t, openMemory) }

// The suite tests the pure functions through Memory; here they are called directly.
func TestTakeIsPure(t *testing.T) {
	params := Params{Algorithm: TokenBucket, Limit: 3, Rate: PerSecond(1)}
	var s BucketState
	for range 3 {
		if d, err := s.Take(params, t0, 1); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	before := s
	d, err := s.Take(params, t0, 1)
	if err != nil || d != (Decision{Limit: 3, RetryAfter: time.Second, ResetAfter: 3 * time.Second}) || s != before {
		t.Errorf("a fourth: %+v, %v; the state %+v became %+v", d, err, before, s)
	}
	if _, err := s.Take(params, t0, -1); !errors.Is(err, ErrCost) || s != before {
		t.Errorf("cost -1: %v", err)
	}
	if d, err := s.Take(params, t0, 4); !errors.Is(err, ErrTooLarge) || d.RetryAfter != Never || s != before {
		t.Errorf("cost 4 of 3: %+v, %v", d, err)
	}
	params.Algorithm = FixedWindow
	if _, err := s.Take(params, t0, 1); !errors.Is(err, ErrParameter) {
		t.Errorf("params of another algorithm: %v", err)
	}
	var w WindowState
	var l LogState
	var c CounterState
	for a, take := range map[Algorithm]func(Params, int64, int64) (Decision, error){FixedWindow: w.Take, SlidingLog: l.Take, SlidingCounter: c.Take} {
		params := Params{Algorithm: a, Limit: 1, Window: time.Minute}
		first, err1 := take(params, t0, 1)
		second, err2 := take(params, t0, 1)
		if err1 != nil || err2 != nil || !first.Allowed || second.Allowed {
			t.Errorf("%s: %+v %v, then %+v %v", a, first, err1, second, err2)
		}
	}
}

func TestNewMemoryRefuses(t *testing.T) {
	params := Params{Algorithm: TokenBucket, Limit: 3, Rate: PerSecond(1)}
	for _, cfg := range []MemoryConfig{{MaxKeys: -1}, {MaxBytes: -1}, {MaxKeys: 1<<31 + 1}} {
		if _, err := NewMemory(params, cfg); !errors.Is(err, ErrParameter) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := NewMemory(Params{}, MemoryConfig{}); !errors.Is(err, ErrParameter) {
		t.Errorf("the zero Params: %v", err)
	}
}

func TestMemoryBounds(t *testing.T) {
	ctx := context.Background()
	for _, params := range paramSets() {
		now := t0
		m, err := NewMemory(params, MemoryConfig{MaxKeys: 1000, Clock: func() int64 { return now }})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10_000 {
			now++
			if d, err := m.Allow(ctx, fmt.Sprint("key", i)); err != nil || !d.Allowed || d.Remaining != 4 {
				t.Fatalf("%s: a new key: %+v, %v", params.Algorithm, d, err)
			}
		}
		st := m.Stats()
		if st.Keys > 1000 || st.Keys < 900 || st.Keys+st.Evicted != 10_000 {
			t.Errorf("%s: %+v after 10000 keys, want 1000 kept", params.Algorithm, st)
		}

		// By bytes: long keys, so that far fewer than MaxKeys fit.
		m, err = NewMemory(params, MemoryConfig{MaxBytes: 64 << 10, MaxKeys: 1000, Clock: func() int64 { return now }})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			m.Allow(ctx, fmt.Sprintf("%01000d", i))
		}
		if st := m.Stats(); st.Bytes > 64<<10 || st.Keys < 30 {
			t.Errorf("%s: %+v with 64 KiB and keys of 1000 bytes", params.Algorithm, st)
		}

		// A long key pushes out many short ones, and never itself.
		for i := range 1000 {
			for j := range 20 {
				m.Allow(ctx, fmt.Sprint(i, "short", j))
			}
			long := fmt.Sprintf("long%01000d", i)
			m.Allow(ctx, long)
			if d, _ := m.Peek(ctx, long); d.Remaining != 4 {
				t.Fatalf("%s: a key was forgotten by the call that brought it: %+v", params.Algorithm, d)
			}
		}
	}
}

// With a clock of the caller's no timer runs: new keys sweep out the expired ones.
func TestMemoryNewKeysSweep(t *testing.T) {
	ctx, now := context.Background(), t0
	for _, params := range paramSets() {
		m, err := NewMemory(params, MemoryConfig{Clock: func() int64 { return now }})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			for i := range 1000 {
				m.Allow(ctx, fmt.Sprint(now, i))
			}
			now += 3_600_000_000
		}
		if st := m.Stats(); st.Keys < 1000 || st.Keys > 1500 || st.Evicted != 0 {
			t.Errorf("%s: five times a thousand keys, an hour apart: %+v, want little more than the last thousand", params.Algorithm, st)
		}
	}
}

// A sliding log grows with each instant; its memory counts, and is given back.
func TestMemoryLogBytes(t *testing.T) {
	ctx, now := context.Background(), t0
	m, err := NewMemory(Params{Algorithm: SlidingLog, Limit: 10_000, Window: time.Second}, MemoryConfig{Clock: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		now++
		m.Allow(ctx, "k")
	}
	if st := m.Stats(); st.Bytes < 10_000*24 || st.Bytes > 40_000*24 {
		t.Errorf("10000 instants take %d bytes, want 24 each and some room", st.Bytes)
	}
	for range 100_000 { // at a steady pace, what expires makes room
		now += 100
		m.Allow(ctx, "k")
	}
	if st := m.Stats(); st.Bytes > 40_000*24 {
		t.Errorf("after a long time it takes %d bytes", st.Bytes)
	}
	now += 1_000_000_000
	if n := m.Sweep(); n != 1 || m.Stats() != (MemoryStats{}) {
		t.Errorf("Sweep dropped %d and left %+v", n, m.Stats())
	}
}

// Idle keys go without anyone asking for it: a few with each new key, the rest by the
// timer, which ends when no key is left. The bubble would hang on a goroutine that stays.
func TestMemorySweepsByItself(t *testing.T) {
	for _, params := range paramSets() {
		synctest.Test(t, func(t *testing.T) {
			m, err := NewMemory(params, MemoryConfig{})
			if err != nil {
				t.Fatal(err)
			}
			ctx := context.Background()
			for i := range 5000 {
				if d, err := m.Allow(ctx, fmt.Sprint(i)); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
			time.Sleep(time.Second)
			if n := m.Stats().Keys; n != 5000 {
				t.Errorf("%s: %d of 5000 keys left while all are in use", params.Algorithm, n)
			}
			time.Sleep(time.Minute)
			if st := m.Stats(); st.Keys != 0 || st.Bytes != 0 {
				t.Errorf("%s: an idle minute later: %+v", params.Algorithm, st)
			}
			if m.sweeping.Load() {
				t.Errorf("%s: the timer still runs", params.Algorithm)
			}
			m.Allow(ctx, "again")
			if !m.sweeping.Load() {
				t.Errorf("%s: the timer does not start again", params.Algorithm)
			}
			m.Close()
			m.Close()
		})
	}
}

func TestMemoryGivesMemoryBack(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		return int64(ms.HeapAlloc)
	}
	ctx, now, keys := context.Background(), t0, 200_000
	if os.Getenv(soakVar) != "" {
		keys = 1_000_000 // slow with the race detector
	}
	m, err := NewMemory(Params{Algorithm: TokenBucket, Limit: 10, Rate: PerSecond(1)}, MemoryConfig{Clock: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	for i := range keys {
		m.Allow(ctx, fmt.Sprintf("client-%08d", i))
	}
	full, st := heap(), m.Stats()
	now += 3_600_000_000
	// No call pays for more than its share of the sweep, however much there is to do.
	swept := 0
	for i := range 1000 {
		before := m.Stats().Keys
		m.Allow(ctx, fmt.Sprint("another", i))
		if n := int(before + 1 - m.Stats().Keys); n > 2 {
			t.Fatalf("a call dropped %d keys, want at most 2", n)
		} else {
			swept += n
		}
	}
	if swept < 1000 {
		t.Errorf("1000 new keys swept out %d of those that expired", swept)
	}
	now += 3_600_000_000
	if n := m.Sweep(); n != keys+1000-swept {
		t.Errorf("Sweep dropped %d of %d keys", n, keys+1000-swept)
	}
	after := heap()
	t.Logf("%d keys: %d bytes each on the heap, %d computed; %d left after the sweep", keys, (full-before)/int64(keys), st.Bytes/int64(keys), after-before)
	if after-before > 10<<20 {
		t.Errorf("%d bytes stay after all keys are gone", after-before)
	}
	runtime.KeepAlive(m)
}

// Exactly the limit passes, however many ask at once.
func TestMemoryConcurrent(t *testing.T) {
	for _, params := range paramSets() {
		params.Limit = 100
		if params.Window > 0 {
			params.Window = MaxPeriod
		} else {
			params.Rate = Rate{1, time.Hour}
		}
		m, err := NewMemory(params, MemoryConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var passed atomic.Int64
		var wg sync.WaitGroup
		for g := range 50 {
			wg.Go(func() {
				for i := range 20 {
					if d, err := m.Allow(context.Background(), "k"); err == nil && d.Allowed {
						passed.Add(1)
					}
					m.Allow(context.Background(), fmt.Sprint(g, i)) // and other traffic
					m.Peek(context.Background(), "k")
				}
			})
		}
		wg.Wait()
		if passed.Load() != 100 {
			t.Errorf("%s: %d passed, want 100", params.Algorithm, passed.Load())
		}
		m.Close()
	}
}

func TestMemoryAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	for _, params := range paramSets() {
		m, err := NewMemory(params, MemoryConfig{})
		if err != nil {
			t.Fatal(err)
		}
		m.Allow(ctx, "k")
		if n := testing.AllocsPerRun(1000, func() { m.Allow(ctx, "k") }); n != 0 {
			t.Errorf("%s: %v allocations a call", params.Algorithm, n)
		}
		m.Close()
	}
}

// Against a plain map: whatever is added and removed, each key is found with its state.
func TestTableLikeAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab table[WindowState, *WindowState]
		model := map[string]int64{}
		narrow := rapid.Uint64Range(0, 7) // few hashes: long runs of slots that collide
		hashes := map[string]uint64{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			key := fmt.Sprint(rapid.IntRange(0, 40).Draw(t, "key"))
			hash, ok := hashes[key]
			if !ok {
				hash = narrow.Draw(t, "hash") << 1
				hashes[key] = hash
			}
			at := tab.find(hash, key)
			if _, ok := model[key]; ok != (at >= 0) {
				t.Fatalf("key %s: found at %d, in the model %v", key, at, ok)
			}
			switch {
			case at < 0:
				v := rapid.Int64().Draw(t, "value")
				tab.insert(hash, key, WindowState{count: v})
				model[key] = v
			case rapid.Bool().Draw(t, "remove"):
				tab.remove(at)
				delete(model, key)
				tab.shrink()
			}
			for key, v := range model {
				if at := tab.find(hashes[key], key); at < 0 || tab.entries[at].state.count != v {
					t.Fatalf("key %s is lost", key)
				}
			}
			if len(tab.entries) != len(model) {
				t.Fatalf("%d entries, want %d", len(tab.entries), len(model))
			}
		}
	})
}
