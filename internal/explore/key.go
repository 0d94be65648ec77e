package explore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
)

// key is what tells two states apart. States with the same key go on in the same way, so it leaves
// out whatever has no effect any more: instants are relative to now, and those that have passed
// are equal where only that matters; pools and tokens are numbered by what they are used for;
// attempts and releases count from the last ones.
type key [16]byte

type scribe struct {
	w      *world
	buf    []byte
	pools  map[string]int
	tokens map[string]int
}

func (w *world) key() (k key) {
	s := scribe{w: w, buf: make([]byte, 0, 512), pools: map[string]int{}, tokens: map[string]int{}}
	s.outside()
	s.happened()
	s.downstream(w.d)
	s.flag(w.saved != nil)
	if w.saved != nil {
		s.num(w.now - w.saved.Now)
		s.downstream(w.saved)
	}
	h := fnv.New128a()
	h.Write(s.buf)
	h.Sum(k[:0])
	return k
}

func (s *scribe) num(n int64)     { s.buf = binary.AppendVarint(s.buf, n) }
func (s *scribe) word(str string) { s.buf = append(append(s.buf, str...), 0) }

func (s *scribe) flag(b bool) {
	if b {
		s.buf = append(s.buf, 1)
		return
	}
	s.buf = append(s.buf, 0)
}

// at writes an instant: how far away it is, or that it was that long ago or longer.
func (s *scribe) at(t, passed int64) {
	if t >= model.Forever {
		s.num(model.Forever)
		return
	}
	s.num(max(t-s.w.now, -passed))
}

// pool writes a pool by its number. One that is gone gets one when it comes up.
func (s *scribe) pool(name string) {
	n, ok := s.pools[name]
	if !ok {
		n = len(s.pools)
		s.pools[name] = n
	}
	s.num(int64(n))
}

// outside writes what is not in Redis.
func (s *scribe) outside() {
	w := s.w
	for _, n := range w.left {
		s.num(int64(n))
	}
	s.at(w.down, 0)
	s.flag(w.late)
	tickets := make([][]byte, len(w.tickets))
	for i, k := range w.tickets {
		t := scribe{w: w}
		t.ticket(k.Ticket)
		t.flag(k.slow)
		tickets[i] = t.buf
	}
	s.sorted(tickets)

	// Pools that do the same are the same, so they are numbered by what they do.
	type one struct {
		name  string
		what  []byte
		tries []int
	}
	pools := make([]one, len(w.pools))
	for i := range w.pools {
		p := &w.pools[i]
		o := one{name: p.name}
		what := make(map[int][]byte)
		for j := range w.tries {
			if w.tries[j].pool == p.name {
				t := scribe{w: w}
				t.try(&w.tries[j])
				what[j] = t.buf
				o.tries = append(o.tries, j)
			}
		}
		slices.SortFunc(o.tries, func(a, b int) int { return bytes.Compare(what[a], what[b]) })
		t := scribe{w: w}
		t.num(int64(p.places))
		t.flag(p.cut)
		t.flag(w.d.Fell[p.name])
		if in := w.d.Pools[p.name]; in != nil {
			t.at(in.Deadline, 1)
		}
		for _, j := range o.tries {
			t.num(int64(len(what[j])))
			t.buf = append(t.buf, what[j]...)
		}
		o.what = t.buf
		pools[i] = o
	}
	slices.SortFunc(pools, func(a, b one) int { return bytes.Compare(a.what, b.what) })
	for n, o := range pools {
		s.pools[o.name] = n
		s.buf = append(s.buf, o.what...)
		for _, j := range o.tries {
			t := &w.tries[j]
			s.tokens[t.token] = 2*len(s.tokens) + 1
			if t.next != "" && t.next != "-" {
				s.tokens[t.next] = 2*len(s.tokens) + 2
			}
		}
	}
}

func (s *scribe) sorted(parts [][]byte) {
	slices.SortFunc(parts, bytes.Compare)
	s.num(int64(len(parts)))
	for _, p := range parts {
		s.buf = append(s.buf, p...)
	}
}

// ticket writes a ticket: its job, and whether it is the last one that was released for it.
func (s *scribe) ticket(k model.Ticket) {
	s.word(k.Tenant)
	s.word(k.ID)
	for _, d := range []*model.Downstream{s.w.d, s.w.saved} {
		if d == nil {
			continue
		}
		if j := d.Job(k.Tenant, k.ID); j != nil {
			s.num(k.Release - j.Releases)
		}
	}
}

func (s *scribe) try(t *try) {
	s.num(int64(t.phase))
	s.flag(t.slow)
	s.flag(t.cut)
	s.flag(t.lost)
	s.flag(t.told)
	if t.phase == entering {
		s.ticket(t.ticket)
		return
	}
	f := s.w.seen.fate(t.tenant, t.id)
	s.word(t.tenant)
	s.word(t.id)
	s.word(string(t.ending))
	s.flag(t.began)
	s.flag(f.owner == t.token)
	s.num(t.attempt - f.attempt)
	s.flag(t.next == "-")
	if t.phase == held || t.phase == asking {
		s.at(t.slot, s.w.tolerance()+1)
		s.num(t.least)
	}
}

// happened writes what the properties know.
func (s *scribe) happened() {
	r := &s.w.seen
	s.flag(r.forgot)
	for i := range r.fates {
		f := &r.fates[i]
		s.flag(f.accepted)
		s.flag(f.mayGo)
		s.flag(f.cancelled)
		s.word(f.end)
		s.num(int64(f.deaths))
		if n := s.tokens[f.owner]; n > 0 {
			s.num(int64(n))
			s.num(f.least)
		}
	}
	recent := make([][]byte, len(r.recent))
	for i, b := range r.recent {
		t := scribe{w: s.w}
		t.word(b.tenant)
		t.num(s.w.now - b.slot)
		t.num(b.least)
		recent[i] = t.buf
	}
	s.sorted(recent)
}

// downstream writes what Redis holds.
func (s *scribe) downstream(d *model.Downstream) {
	grace := d.Policy.Tolerance.Microseconds() / 2
	long := s.w.s.longest() + grace + 1
	s.at(d.Epoch+d.Ahead, long)
	s.flag(d.Epoch > d.LastRelease)
	s.num(min(s.w.now-d.LastRelease, 5_000_001)) // longer is a silence
	s.at(d.Until, 0)
	s.timeline(d, d.Timeline)
	s.at(d.Alive, 1)
	s.num(d.Places)
	if calm := d.Calm - s.w.now; calm >= 0 && d.Alive >= s.w.now {
		s.num(0) // every look of the scheduler renews it
	} else {
		s.num(max(calm, -1))
	}
	s.at(d.SparedUntil, 0)
	s.at(d.TurnUntil, 0)
	s.book(d.Due, func(l model.Line) { s.num(max(l.At-s.w.now, d.Policy.Lead.Microseconds())) })
	s.book(d.Ready, func(l model.Line) { s.num(l.At - d.VirtualTime) })
	s.book(d.Out, func(l model.Line) { s.at(l.At, 0) })
	s.book(d.Running, func(l model.Line) {
		s.at(l.At, 1)
		s.flag(l.At <= d.SparedFrom)
		s.flag(l.At <= d.LastRelease)
	})
	s.book(d.Apart, func(l model.Line) { s.num(l.At) })
	for i := range s.w.s.Tenants {
		s.tenant(d, d.Tenants[s.w.s.Tenants[i].Name])
	}
	s.turns(d)
	s.gone(d)
}

func (s *scribe) book(b *model.Book, at func(model.Line)) {
	s.num(int64(b.Len()))
	for _, l := range b.Lines() {
		s.word(l.Name)
		at(l)
	}
}

func (s *scribe) tenant(d *model.Downstream, t *model.Tenant) {
	s.num(interval(d.Limits(t).Rate))
	s.timeline(d, t.Timeline)
	s.at(t.Until, 0)
	s.book(t.Back, func(model.Line) {})
	s.num(int64(len(t.Fresh)))
	for _, id := range t.Fresh {
		s.word(id)
	}
	s.book(t.Later, func(l model.Line) { s.at(l.At, 0) })
	s.book(t.Outs, func(model.Line) {})
	s.num(max(0, t.VirtualTime-d.VirtualTime))
	s.num(t.OutN)
	s.num(t.RunN)
	for i := range s.w.seen.fates {
		if f := &s.w.seen.fates[i]; f.tenant == t.Name {
			s.job(d, f, t.Jobs[f.id])
		}
	}
}

func (s *scribe) job(d *model.Downstream, f *fate, j *model.Job) {
	if j == nil {
		s.word("")
		return
	}
	s.word(string(j.State))
	token := s.tokens[j.Token]
	s.num(int64(token))
	if token != 0 && j.Next != "-" {
		s.word(j.Next) // its report may be repeated
	}
	if over(j) {
		return
	}
	s.num(j.Starts - f.attempt)
	s.num(j.Starts - j.Forgiven)
	s.num(j.Suspect)
	s.num(j.Blamed)
	s.num(j.Throttles)
	s.flag(j.Granted)
	if j.Owned(j.Token) {
		pool := model.PoolOf(j.Token)
		s.pool(pool)
		s.flag(d.Fell[pool])
		s.at(j.Slot, 0)
	}
}

func (s *scribe) timeline(d *model.Downstream, t buckets.Timeline) {
	if t.Rate.IsZero() {
		s.num(-1)
		s.flag(t.Seen < d.Epoch)
		return
	}
	grace := d.Policy.Tolerance.Microseconds() / 2
	s.at(t.Slot, s.w.s.longest()+grace+1)
	s.at(t.Next, grace+1)
	s.num(t.Rem)
	s.num(interval(t.Rate))
	doubt := t.Seen < d.Epoch
	s.flag(doubt)
	s.flag(doubt && t.Next >= d.Epoch+d.Ahead)
}

// turns writes the order of last slots, which decides whose turn it is among suspects.
func (s *scribe) turns(d *model.Downstream) {
	type last struct {
		name string
		slot int64
	}
	var all []last
	for i := range s.w.seen.fates {
		f := &s.w.seen.fates[i]
		if j := d.Job(f.tenant, f.id); j != nil && !over(j) && (j.Suspect > 0 || j.Owned(j.Token)) {
			all = append(all, last{f.tenant + " " + f.id, j.Slot})
		}
	}
	if d.TurnUntil > s.w.now {
		all = append(all, last{"", d.Turned})
	}
	if len(all) < 2 {
		return
	}
	slices.SortFunc(all, func(a, b last) int { return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.name, b.name)) })
	for i, l := range all {
		s.word(l.name)
		s.flag(i > 0 && l.slot == all[i-1].slot)
	}
}

// gone writes the pools that are not there any more, and that Redis still counts on.
func (s *scribe) gone(d *model.Downstream) {
	var all [][]byte
	for name, p := range d.Pools {
		if s.w.pool(name) == nil && p.Deadline >= s.w.now {
			t := scribe{w: s.w}
			n, known := s.pools[name]
			t.flag(known)
			t.num(int64(n))
			t.num(p.Deadline - s.w.now)
			t.num(int64(p.Places))
			all = append(all, t.buf)
		}
	}
	s.sorted(all)
}
