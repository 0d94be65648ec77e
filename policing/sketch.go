package policing

import (
	"hash/maphash"
	"math"
)

// sketch counts how often each of any number of keys came, in memory that does not grow: a
// count-min sketch (Cormode and Muthukrishnan, 2005) with conservative update.
//
// Of n added, an estimate is never below the exact count, and above it by more than
// e/width × n with a probability of e^-rows at most. Halving halves every count and n,
// rounding down, and so keeps both bounds, the second one with 1 more.
//
// The hash has a seed of its own, so that nobody can choose keys that collide.
type sketch struct {
	seed  maphash.Seed
	width uint64 // a power of two
	rows  [][]uint32
	total uint64
}

func newSketch(width, rows int) *sketch {
	s := &sketch{seed: maphash.MakeSeed(), width: uint64(width), rows: make([][]uint32, rows)}
	for i := range s.rows {
		s.rows[i] = make([]uint32, width)
	}
	return s
}

// cell returns the key's counter in a row. The hash is mixed anew for each (the finalizer
// of SplitMix64): with sums of two halves of it, keys that meet in two rows meet in all,
// and now and then one that is rare would pass for the most frequent.
func (s *sketch) cell(hash uint64, row int) *uint32 {
	x := hash + uint64(row+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return &s.rows[row][(x^x>>31)&(s.width-1)]
}

// add counts the key once and returns its estimate.
func (s *sketch) add(key string) uint32 {
	hash := maphash.String(s.seed, key)
	count := s.estimateOf(hash)
	if count < math.MaxUint32 {
		count++
	}
	for row := range s.rows { // raise no counter beyond what the key needs
		c := s.cell(hash, row)
		*c = max(*c, count)
	}
	s.total++
	return count
}

func (s *sketch) estimate(key string) uint32 { return s.estimateOf(maphash.String(s.seed, key)) }

func (s *sketch) estimateOf(hash uint64) uint32 {
	least := uint32(math.MaxUint32)
	for row := range s.rows {
		least = min(least, *s.cell(hash, row))
	}
	return least
}

// halve shifts every count right, once for each half-life that has passed.
func (s *sketch) halve(times uint) {
	for _, row := range s.rows {
		for i := range row {
			row[i] >>= times
		}
	}
	s.total >>= times
}
