package workers

import (
	"sync"
	"time"
)

// redisClock tells at which local instant a slot, which is an instant of Redis' clock, has surely
// come.
//
// Each call that grants a slot says what Redis' clock read at some moment between its request and
// its reply. So the offset of the clocks, local − Redis, is at least request − reading and at most
// reply − reading (F. Cristian, Probabilistic clock synchronization, 1989). From one call alone
// only the latter is safe, and it delays the start by as much as the reply was late. But the offset
// is the same for all calls, so the least of their upper bounds holds for each: it is as tight as
// the fastest reply, and as even.
//
// Clocks drift apart, so a bound grows with its age. A clock that stepped contradicts the bound:
// then only the newest call counts; and a step too small to contradict it is shorter than that call
// took. The zero value knows nothing yet. It is safe for concurrent use.
type redisClock struct {
	mu           sync.Mutex
	local, redis time.Time     // an instant of each clock, from which the offset is counted
	bound        time.Duration // the offset is at most this
	told         time.Time     // when that was learnt; zero = nothing is known
}

// maxDrift bounds how fast two clocks drift apart, in millionths: undisciplined quartz does no
// worse.
const maxDrift = 100

// instant returns the local instant at which a slot has come. A call that lasted from asked to told
// said that the slot was wait ahead of Redis' clock. The instant is no earlier than asked + wait,
// and no later than told + wait.
func (k *redisClock) instant(slot time.Time, wait time.Duration, asked, told time.Time) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	reading := slot.Add(-wait)
	if k.told.IsZero() {
		k.local, k.redis = told, reading
	}
	ahead := reading.Sub(k.redis)
	least, most := asked.Sub(k.local)-ahead, told.Sub(k.local)-ahead
	if !k.told.IsZero() {
		k.bound += max(0, told.Sub(k.told)) * maxDrift / 1_000_000
	}
	if k.told.IsZero() || most < k.bound || k.bound < least {
		k.bound = most
	}
	k.told = told
	return k.local.Add(slot.Sub(k.redis) + k.bound)
}
