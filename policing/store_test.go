package policing

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// The clock is read in the middle of a check, and here it lets others go first: even so, nobody
// comes between the look at all rules and the taking. Each rule has lost what passed.
func TestMemoryChainIsAtomic(t *testing.T) {
	clock := func() int64 { runtime.Gosched(); return t0 }
	p := open(t, Config{Clock: clock}, "fixed_window 100/d name=a", "sliding_log 50/d name=b per=downstream", "token_bucket 1/d burst 75 per=global name=c")
	var passed [2]atomic.Int64
	var wg sync.WaitGroup
	for g := range 20 {
		wg.Go(func() {
			for range 20 {
				if check(t, p, Subject{Downstream: fmt.Sprint(g % 2), Tenant: "x"}, 1).Allowed {
					passed[g%2].Add(1)
				}
			}
		})
	}
	wg.Wait()
	all := passed[0].Load() + passed[1].Load()
	for g := range passed {
		n := passed[g].Load()
		want := []int64{100 - n, 50 - n, 75 - all}
		if got := left(t, p, Subject{Downstream: fmt.Sprint(g), Tenant: "x"}); all != 75 || !slices.Equal(got, want) {
			t.Errorf("downstream %d: %d of %d passed, %v left; want %v", g, n, all, got, want)
		}
	}
}

func TestLocksets(t *testing.T) {
	one := locksetOf([]ask{{key: "a"}, {key: "a"}, {key: "b"}})
	if other := locksetOf([]ask{{key: "b"}, {key: "a"}}); one != other || one == 0 {
		t.Errorf("%b and %b: want one set for the same keys", one, other)
	}
	var s memoryStore
	s.lock(one)
	s.unlock(one)
	s.lock(one) // all were unlocked
	s.unlock(one)
}
