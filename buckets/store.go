package buckets

import (
	"reflect"
	"sync/atomic"
)

// keyStore is a store with the type of its states hidden, so that Memory is one type.
type keyStore interface {
	take(p *plan, hash uint64, key string, now, n int64, insert bool) answer
	check(p *plan, hash uint64, key string, now, n int64) answer
	reset(hash uint64, key string)
	sweep(p *plan, shard int, now int64) int
	shards() int
	stats() MemoryStats
}

// store is a table for each shard, with common bounds.
type store[S any, P keyState[S]] struct {
	tables    []table[S, P]
	shift     uint // the shard is hash >> shift
	entrySize int  // bytes an entry takes, without key and extra
	maxKeys   int64
	maxBytes  int64
	grows     bool   // whether extra changes
	added     func() // called with a lock held when a key was added; may be nil

	keys    atomic.Int64
	bytes   atomic.Int64
	evicted atomic.Int64
}

func newStore[S any, P keyState[S]](shardBits uint, maxKeys, maxBytes int64, added func()) *store[S, P] {
	_, grows := any(new(S)).(*LogState)
	return &store[S, P]{
		tables:    make([]table[S, P], 1<<shardBits),
		shift:     64 - shardBits,
		entrySize: int(reflect.TypeFor[entry[S]]().Size()) + 2*4, // and its slots, half of them used
		maxKeys:   maxKeys,
		maxBytes:  maxBytes,
		grows:     grows,
		added:     added,
	}
}

func (s *store[S, P]) shards() int { return len(s.tables) }

func (s *store[S, P]) stats() MemoryStats {
	return MemoryStats{Keys: s.keys.Load(), Bytes: s.bytes.Load(), Evicted: s.evicted.Load()}
}

// table returns the shard of a hash. A shift by 64, with one shard, gives 0.
func (s *store[S, P]) table(hash uint64) *table[S, P] { return &s.tables[hash>>s.shift] }

// take asks a key's state. An unknown key is remembered only where that matters: when
// it took something, or insert is set.
func (s *store[S, P]) take(p *plan, hash uint64, key string, now, n int64, insert bool) answer {
	t := s.table(hash)
	t.mu.Lock()
	at := t.find(hash, key)
	if at < 0 {
		fresh := P(&t.fresh)
		*fresh = *new(S)
		a := fresh.take(p, now, n)
		if insert || (a.ok && n > 0) {
			t.insert(hash, key, t.fresh)
			s.keys.Add(1)
			s.bytes.Add(int64(s.entrySize + len(key) + fresh.extra()))
			s.sweepSome(t, p, now, 2, key)   // each new key pays for a look at two others
			s.bound(t, p, t.find(hash, key)) // the sweep may have moved it
			if s.added != nil {
				s.added()
			}
		}
		t.mu.Unlock()
		return a
	}
	if s.grows {
		a := s.takeGrowing(t, p, at, now, n)
		t.mu.Unlock()
		return a
	}
	a := P(&t.entries[at].state).take(p, now, n)
	t.mu.Unlock()
	return a
}

// takeGrowing is take for a state that takes more or less memory after each call. The
// table's lock must be held.
func (s *store[S, P]) takeGrowing(t *table[S, P], p *plan, at int, now, n int64) answer {
	state := P(&t.entries[at].state)
	before := state.extra()
	a := state.take(p, now, n)
	if grown := state.extra() - before; grown != 0 {
		s.bytes.Add(int64(grown))
		s.bound(t, p, at)
	}
	return a
}

// check answers as take would and changes nothing.
func (s *store[S, P]) check(p *plan, hash uint64, key string, now, n int64) answer {
	t := s.table(hash)
	t.mu.Lock()
	var dry S
	if at := t.find(hash, key); at >= 0 {
		dry = P(&t.entries[at].state).clone()
	}
	t.mu.Unlock()
	return P(&dry).take(p, now, n)
}

func (s *store[S, P]) reset(hash uint64, key string) {
	t := s.table(hash)
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.find(hash, key); at >= 0 {
		s.drop(t, at)
		t.shrink()
	}
}

// drop removes an entry and its share of the totals. The table's lock must be held.
func (s *store[S, P]) drop(t *table[S, P], at int) {
	e := &t.entries[at]
	s.keys.Add(-1)
	s.bytes.Add(-int64(s.entrySize + len(e.key) + P(&e.state).extra()))
	t.remove(at)
}

// bound evicts from the table while the store is over its bounds; it never evicts keep, the entry
// that is being asked. A table with no other key lets the store exceed them by that one.
func (s *store[S, P]) bound(t *table[S, P], p *plan, keep int) {
	for s.keys.Load() > s.maxKeys || s.bytes.Load() > s.maxBytes {
		at := t.victim(p, keep)
		if at < 0 {
			return
		}
		if keep == len(t.entries)-1 {
			keep = at // the last entry moves into the gap
		}
		s.drop(t, at)
		s.evicted.Add(1)
	}
}

// minGrace is how long a key outlives its use, in µs: one asked all the time, at a rate
// that forgives within microseconds, must not be made anew for each call.
const minGrace = 1_000_000

// sweepSome looks at the next few entries and drops those that are as if never used, except keep.
// The table's lock must be held.
func (s *store[S, P]) sweepSome(t *table[S, P], p *plan, now int64, few int, keep string) (dropped int) {
	grace := int64(minGrace)
	if p.note {
		grace = max(grace, p.back) // the caller's clock may still come back to where the key counts
	}
	for range few {
		if t.hand >= len(t.entries) {
			t.hand = 0
		}
		if len(t.entries) == 0 {
			break
		}
		if e := &t.entries[t.hand]; P(&e.state).idle(p)+grace <= now && e.key != keep {
			s.drop(t, t.hand)
			dropped++
			continue // another entry has moved here
		}
		t.hand++
	}
	return dropped
}

// chunk is how many entries a sweep looks at before it lets go of the lock: some 10 µs.
const chunk = 256

// sweep goes once through a shard, in chunks, and returns how many keys it dropped.
func (s *store[S, P]) sweep(p *plan, shard int, now int64) (dropped int) {
	t := &s.tables[shard]
	t.mu.Lock()
	for left := len(t.entries); left > 0; left -= chunk {
		dropped += s.sweepSome(t, p, now, min(chunk, left), "")
		t.shrink()
		t.mu.Unlock() // whoever waits goes first
		t.mu.Lock()
	}
	t.mu.Unlock()
	return dropped
}
