package workers

import (
	"sync"
	"time"
)

// redisClock tells at which local instants a slot, which is an instant of Redis' clock, can be used.
//
// Each call that grants a slot says what Redis' clock read at some moment between its request and
// its reply. So the offset of the clocks, local − Redis, is at least request − reading and at most
// reply − reading (F. Cristian, Probabilistic clock synchronization, 1989). The offset is the same
// for all calls, so the closest of their bounds hold for each: they are as far apart as the fastest
// round trip took, and as even.
//
// Clocks drift apart, so bounds widen with their age. A clock that stepped contradicts them: then
// only the newest call counts; and a step too small to contradict them is shorter than that call
// took. The zero value knows nothing yet. It is safe for concurrent use.
type redisClock struct {
	mu           sync.Mutex
	local, redis time.Time     // an instant of each clock, from which the offset is counted
	least, most  time.Duration // the offset is between these
	told         time.Time     // when that was learnt; zero = nothing is known

	wall func(time.Time) time.Time // reads the wall clock at an instant; nil = that of the instant
}

// maxDrift bounds how fast two clocks drift apart, in millionths: undisciplined quartz does no
// worse.
const maxDrift = 100

// window is when a start may use its slot.
type window struct {
	least       time.Time // the slot has come no earlier than this
	from, until time.Time // a start happens between these; if until is earlier, not at all
	told, wall  time.Time // when that was learnt, by both local clocks
	clock       *redisClock
}

// window returns when a slot can be used. A call that lasted from asked to told said that the slot
// was wait ahead of Redis' clock.
//
// A start waits until the slot has surely come, and happens while it is surely no more than tau
// over. Where the round trip leaves less than a quarter of tau in between, no clock can prove more,
// and one thing is taken for granted: that the ways to Redis and back take about the same time. By
// that a start is at most tau late. It is never early: a call may take long on its way to Redis alone,
// such as one that connects first. From 2 tau away there is no such instant.
func (k *redisClock) window(slot time.Time, wait, tau time.Duration, asked, told time.Time) window {
	least, most := k.bounds(slot.Add(-wait), asked, told)
	since := slot.Sub(k.redis)
	w := window{least: k.local.Add(since + least), from: k.local.Add(since + most), told: told, wall: k.onTheWall(told), clock: k}
	likely := k.local.Add(since + (least+most)/2) // when it has come if both ways to Redis take the same time
	w.until = later(w.least.Add(tau), earlier(likely.Add(tau), w.from.Add(tau/4)))
	return w
}

// over tells whether a slot is over at an instant. A machine that is suspended may wake with a
// monotonic clock that stood still meanwhile, so the later of the two local clocks counts.
func (w window) over(at time.Time) bool {
	stood := w.clock.onTheWall(at).Sub(w.wall) - at.Sub(w.told)
	return at.Add(max(0, stood)).After(w.until)
}

func (k *redisClock) onTheWall(at time.Time) time.Time {
	if k.wall != nil {
		return k.wall(at)
	}
	return at.Round(0)
}

// bounds are those of the offset, with what a call adds that read Redis' clock.
func (k *redisClock) bounds(reading, asked, told time.Time) (least, most time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := k.told.IsZero()
	if first {
		k.local, k.redis = told, reading
	}
	ahead := reading.Sub(k.redis)
	least, most = asked.Sub(k.local)-ahead, told.Sub(k.local)-ahead
	if !first {
		age := max(0, told.Sub(k.told)) * maxDrift / 1_000_000
		k.least, k.most = k.least-age, k.most+age
	}
	if first || most < k.least || k.most < least {
		k.least, k.most = least, most
	}
	k.least, k.most, k.told = max(k.least, least), min(k.most, most), told
	return k.least, k.most
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
