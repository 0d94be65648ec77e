package buckets

import (
	"strings"
	"sync"
)

// keyState is what one algorithm keeps of one key.
type keyState[S any] interface {
	*S
	take(p *plan, now, n int64) answer
	idle(p *plan) int64 // the instant from which the key is as if never used
	extra() int         // bytes besides the struct itself
	clone() S
}

// table is one shard of a Memory: keys with their states, close together in memory, and
// an index by hash (open addressing, linear probing). Entries are in no order; the last
// one moves into the place of one that is removed. So a sweep can walk a few entries at
// a time, and a table that empties gives its memory back, which a Go map does not.
type table[S any, P keyState[S]] struct {
	mu      sync.Mutex
	slots   []uint32 // 1 + an index into entries; 0 is free; a power of two, at most 3/4 used
	entries []entry[S]
	hand    int // where the next sweep continues
	fresh   S   // a place to ask a new key's state, before it is known to be worth an entry

	_ [64]byte // keep neighbouring locks off one cache line
}

type entry[S any] struct {
	hash  uint64
	key   string
	state S
}

const minSlots = 8

// find returns the index of a key's entry, or -1. The lock must be held.
func (t *table[S, P]) find(hash uint64, key string) int {
	if len(t.slots) == 0 {
		return -1
	}
	mask := uint32(len(t.slots) - 1)
	for i := uint32(hash) & mask; ; i = (i + 1) & mask {
		at := int(t.slots[i]) - 1
		if at < 0 {
			return -1
		}
		if e := &t.entries[at]; e.hash == hash && e.key == key {
			return at
		}
	}
}

// insert adds a key that find did not find. The lock must be held.
func (t *table[S, P]) insert(hash uint64, key string, state S) {
	if (len(t.entries)+1)*4 > len(t.slots)*3 {
		t.reindex(max(minSlots, 2*len(t.slots)))
	}
	// The key may be a slice of a large string, which must not live as long as the table.
	t.entries = append(t.entries, entry[S]{hash: hash, key: strings.Clone(key), state: state})
	t.index(len(t.entries) - 1)
}

// remove drops the entry at index at. The lock must be held.
func (t *table[S, P]) remove(at int) {
	mask := uint32(len(t.slots) - 1)
	hole := t.slotOf(at)
	// Close the gap: a later entry of the same run of slots moves up, unless it is
	// already in its best place.
	for i := (hole + 1) & mask; t.slots[i] != 0; i = (i + 1) & mask {
		home := uint32(t.entries[t.slots[i]-1].hash) & mask
		if (i-home)&mask >= (i-hole)&mask {
			t.slots[hole], hole = t.slots[i], i
		}
	}
	t.slots[hole] = 0

	last := len(t.entries) - 1
	if at != last {
		t.slots[t.slotOf(last)] = uint32(at + 1)
		t.entries[at] = t.entries[last]
	}
	t.entries[last] = entry[S]{}
	t.entries = t.entries[:last]
}

// shrink gives memory back when most of it is unused. The lock must be held.
func (t *table[S, P]) shrink() {
	switch {
	case len(t.entries) == 0:
		t.entries, t.slots, t.hand = nil, nil, 0
	case cap(t.entries) > 64 && len(t.entries) < cap(t.entries)/4:
		t.entries = append(make([]entry[S], 0, 2*len(t.entries)), t.entries...)
		size := minSlots
		for size*3 < 2*len(t.entries)*4 {
			size *= 2
		}
		t.reindex(size)
	}
}

func (t *table[S, P]) reindex(size int) {
	t.slots = make([]uint32, size)
	for at := range t.entries {
		t.index(at)
	}
}

func (t *table[S, P]) index(at int) {
	mask := uint32(len(t.slots) - 1)
	i := uint32(t.entries[at].hash) & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = uint32(at + 1)
}

func (t *table[S, P]) slotOf(at int) uint32 {
	mask := uint32(len(t.slots) - 1)
	i := uint32(t.entries[at].hash) & mask
	for t.slots[i] != uint32(at+1) {
		i = (i + 1) & mask
	}
	return i
}

// victim returns the index of the entry, of a few next to the hand, that is idle the
// soonest, and so loses the least; never that of keep. -1 when there is no other.
func (t *table[S, P]) victim(p *plan, keep int) int {
	best, when := -1, int64(0)
	for range min(8, len(t.entries)) {
		if t.hand >= len(t.entries) {
			t.hand = 0
		}
		if t.hand != keep {
			if idle := P(&t.entries[t.hand].state).idle(p); best < 0 || idle < when {
				best, when = t.hand, idle
			}
		}
		t.hand++
	}
	return best
}
