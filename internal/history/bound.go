package history

import (
	"cmp"
	"slices"
	"time"
)

// Full is the outcome of a Refuse for lack of room.
const Full = "full"

// Bound finds answers to offers that no order of events explains, if a bucket has room for depth
// jobs: an accept while depth jobs certainly waited, or a refusal as full while fewer than that can
// have waited. A job waits from some instant between its offer and the answer until its ticket is
// released, which is at most early before its slot. Jobs that came back to the bucket are not
// accounted for: the history should have no retries, and no lost tickets.
//
// An answer is judged by what others did, at every instant between offer and answer.
func Bound(h History, tenant string, depth int, early time.Duration) []Violation {
	type offer struct {
		asked, told int64
		answer      Event
	}
	offers, starts := map[job]*offer{}, map[job]Event{}
	var all []*offer
	for _, e := range h.Tenant(tenant) {
		switch e.Kind {
		case Offer:
			o := &offer{asked: e.At}
			offers[e.job()] = o
		case Accept, Refuse:
			if o := offers[e.job()]; o != nil && o.told == 0 {
				o.told, o.answer = e.At, e
				all = append(all, o)
			}
		case Start:
			if _, again := starts[e.job()]; !again {
				starts[e.job()] = e
			}
		}
	}
	// Steps of the least and the most that can have waited.
	var least, most steps
	for _, o := range all {
		if o.answer.Kind != Accept {
			continue
		}
		most = append(most, step{o.asked, 1})
		least = append(least, step{o.told, 1})
		if e, started := starts[o.answer.job()]; started {
			slot := e.At - (e.Wall-e.Slot)*int64(time.Microsecond)
			most = append(most, step{e.At, -1})
			// Its ticket may have left right after it came.
			least = append(least, step{max(slot-int64(early), o.told), -1})
		}
	}
	least.sort()
	most.sort()
	var out []Violation
	for _, o := range all {
		switch {
		case o.answer.Kind == Accept:
			// It is itself in least only from its answer on.
			if n := least.lowest(o.asked, o.told-1); n >= depth {
				out = append(out, found("bound", o.answer, "accepted while at least %d waited, want at most %d", n, depth))
			}
		case o.answer.Outcome == Full:
			if n := most.highest(o.asked, o.told); n < depth {
				out = append(out, found("bound", o.answer, "refused as full while at most %d waited, want %d", n, depth))
			}
		}
	}
	return out
}

// step is a change of a count.
type step struct {
	at int64
	by int
}

// steps are changes of a count, in order; sort makes each hold the count after it.
type steps []step

func (s steps) sort() {
	slices.SortFunc(s, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.by, a.by)) })
	n := 0
	for i := range s {
		n += s[i].by
		s[i].by = n
	}
}

// within calls see with every count that held between two instants.
func (s steps) within(from, until int64, see func(int)) {
	i, _ := slices.BinarySearchFunc(s, from, func(e step, at int64) int { return cmp.Or(cmp.Compare(e.at, at), -1) })
	if i == 0 {
		see(0)
	} else {
		see(s[i-1].by)
	}
	for ; i < len(s) && s[i].at <= until; i++ {
		see(s[i].by)
	}
}

func (s steps) lowest(from, until int64) int {
	n := int(^uint(0) >> 1)
	s.within(from, until, func(k int) { n = min(n, k) })
	return n
}

func (s steps) highest(from, until int64) (n int) {
	s.within(from, until, func(k int) { n = max(n, k) })
	return n
}
