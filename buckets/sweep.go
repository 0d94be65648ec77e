package buckets

import "time"

// The shortest pause of the timer, and the shortest and the longest pass through all shards.
const (
	minTick = 100 * time.Millisecond
	minPass = time.Second
	maxPass = time.Minute
)

// pace returns how long to wait between two steps of the sweep, and how many shards a
// step sweeps, so that a pass takes half the time a key stays in use.
func (p *plan) pace(shards int) (tick time.Duration, step int) {
	pass := min(max(micros((p.window+p.full.us)/2), minPass), maxPass)
	tick = max(pass/time.Duration(shards), minTick)
	step = int((int64(shards)*int64(tick) + int64(pass) - 1) / int64(pass))
	return tick, min(step, shards)
}

// Sweep forgets every key that is as if never used, and returns how many. The timer does
// the same bit by bit, so only a limiter with a Clock of the caller's needs to call it.
func (m *Memory) Sweep() int {
	p, now, n := m.plan.Load(), m.now(), 0
	for shard := range m.store.shards() {
		n += m.store.sweep(p, shard, now)
	}
	return n
}

// schedule starts the timer unless it runs. It is called with a shard locked, so it must
// not wait for a step that wants that shard: only a timer that does not run is touched.
func (m *Memory) schedule() {
	if m.sweeping.Load() || !m.sweeping.CompareAndSwap(false, true) {
		return
	}
	tick, _ := m.plan.Load().pace(m.store.shards())
	time.AfterFunc(tick, m.sweepStep)
}

// sweepStep runs on the timer: some shards, and again later while there are keys.
func (m *Memory) sweepStep() {
	m.stepMu.Lock()
	defer m.stepMu.Unlock()
	if m.closed {
		return // and sweeping stays true, so nothing schedules another
	}
	p := m.plan.Load()
	_, step := p.pace(m.store.shards())
	for range step {
		m.store.sweep(p, m.shard, m.now())
		m.shard = (m.shard + 1) % m.store.shards()
	}
	m.sweeping.Store(false)
	if m.store.stats().Keys > 0 {
		m.schedule() // otherwise the next key does
	}
}

// Close ends the sweep and waits for the step that runs. The limiter goes on to answer,
// and new keys still push out expired ones. Close may be called twice.
func (m *Memory) Close() error {
	m.stepMu.Lock()
	defer m.stepMu.Unlock()
	m.closed = true
	return nil
}
