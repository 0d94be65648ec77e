package policing

import (
	"hash/maphash"
	"math/bits"
)

// stripes is how many locks the keys of a memoryStore share.
const stripes = 64

// lockset is a set of stripes, a bit each. Taken from the lowest bit up by everybody, so
// no two wait for each other.
type lockset uint64

var stripeSeed = maphash.MakeSeed()

// locksetOf returns the stripes of the asks. The same key under two rules may share one.
func locksetOf(asks []ask) lockset {
	var set lockset
	for _, a := range asks {
		set |= 1 << (maphash.String(stripeSeed, a.key) % stripes)
	}
	return set
}

func (s *memoryStore) lock(set lockset) {
	for ; set != 0; set &= set - 1 {
		s.locks[bits.TrailingZeros64(uint64(set))].Lock()
	}
}

func (s *memoryStore) unlock(set lockset) {
	for ; set != 0; set &= set - 1 {
		s.locks[bits.TrailingZeros64(uint64(set))].Unlock()
	}
}
