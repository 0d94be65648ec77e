package policing

import (
	"cmp"
	"container/heap"
	"hash/maphash"
	"math"
	"slices"
	"strings"
)

// sketch counts how often each of any number of keys came, in memory that does not grow: a
// count-min sketch (Cormode and Muthukrishnan, 2005) with conservative update.
//
// With n added, an estimate is never below the exact count, and exceeds it by more than e/width × n
// with a probability of at most e^-rows. Halving halves every count and n, rounding down, and so
// keeps both bounds, the second one plus 1.
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

// cell returns the key's counter in a row. The hash is mixed anew for each (the finalizer of
// SplitMix64): with sums of its two halves, keys that meet in two rows would meet in all, and now
// and then a rare key would pass for the most frequent.
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

// topKeys keeps the keys whose estimates, when they last came, were the largest: a heap with the
// least of them on top. The least only rises between two halvings, so a key that is missing had,
// when it last came, no more than the least has now.
type topKeys struct {
	size  int
	items []topItem
	index map[string]int // of each item's key
}

type topItem struct {
	key   string
	count uint32
}

func newTopKeys(size int) *topKeys { return &topKeys{size: size, index: make(map[string]int, size)} }

// offer notes that the key's estimate is now count.
func (t *topKeys) offer(key string, count uint32) {
	if i, known := t.index[key]; known {
		t.items[i].count = count
		heap.Fix(t, i)
		return
	}
	if len(t.items) < t.size {
		// The key may be a slice of a large string, which must not live as long as the list.
		heap.Push(t, topItem{strings.Clone(key), count})
		return
	}
	if count <= t.items[0].count {
		return
	}
	delete(t.index, t.items[0].key)
	t.items[0] = topItem{strings.Clone(key), count}
	t.index[t.items[0].key] = 0
	heap.Fix(t, 0)
}

// halve does to the counts what the sketch does to its own. What falls to 0 is dropped.
func (t *topKeys) halve(times uint) {
	for i := range t.items {
		t.items[i].count >>= times // the order stays
	}
	for len(t.items) > 0 && t.items[0].count == 0 {
		heap.Pop(t)
	}
}

// sorted returns the items, largest first.
func (t *topKeys) sorted() []topItem {
	items := slices.Clone(t.items)
	slices.SortFunc(items, func(a, b topItem) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.key, b.key))
	})
	return items
}

// The rest is heap.Interface.

func (t *topKeys) Len() int           { return len(t.items) }
func (t *topKeys) Less(i, j int) bool { return t.items[i].count < t.items[j].count }

func (t *topKeys) Swap(i, j int) {
	t.items[i], t.items[j] = t.items[j], t.items[i]
	t.index[t.items[i].key], t.index[t.items[j].key] = i, j
}

// Push implements heap.Interface.
func (t *topKeys) Push(x any) {
	item := x.(topItem)
	t.index[item.key] = len(t.items)
	t.items = append(t.items, item)
}

// Pop implements heap.Interface.
func (t *topKeys) Pop() any {
	last := t.items[len(t.items)-1]
	t.items = t.items[:len(t.items)-1]
	delete(t.index, last.key)
	return last
}
