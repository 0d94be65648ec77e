package policing

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// topKeys has the keys with the largest estimates that a sketch gave when they last came:
// a heap with the least of them on top. The least only rises between two halvings, so a
// key that is missing had at its last coming no more than the least has now.
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
		// The key may be a piece of something large, which must not live as long as we do.
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

// halve does to the counts what the sketch does to its own. What falls to 0 goes.
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
