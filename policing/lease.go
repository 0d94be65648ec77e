package policing

import (
	"strings"
	"sync"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// lease is what a node holds of one key. The zero value holds nothing.
type lease struct {
	mu       sync.Mutex
	left     int64  // tokens, at most one lease
	lapses   int64  // when they are void, µs
	fetching *fetch // the request to the lender that is under way, or nil

	told    buckets.Decision // what the lender said last
	toldAt  int64            // µs, when it was asked
	refused int64            // the smallest request that it refused then; 0 when it did not
	repeat  int64            // until when a refusal is repeated, µs
}

// fetch is a request to the lender. What was left of the lease is set aside for the caller that
// began it.
type fetch struct {
	held int64
	done chan struct{} // closed when it has ended
	err  error         // the lender's failure, set before done is closed
}

// begin starts a fetch. l.mu must be held.
func (l *lease) begin() *fetch {
	l.fetching = &fetch{held: l.left, done: make(chan struct{})}
	l.left = 0
	return l.fetching
}

// end ends a fetch, which leaves some tokens in the lease. l.mu must be held.
func (l *lease) end(f *fetch, left int64) {
	l.left += left
	l.fetching = nil
	close(f.done)
}

// decide answers a request of n at the instant now without the lender, if that can be
// done. l.mu must be held.
func (l *lease) decide(now, n, limit int64) (buckets.Decision, bool) {
	if now >= l.lapses {
		l.left = 0
	}
	if l.left >= n {
		l.left -= n
		return l.decision(now, limit), true
	}
	if l.refused > 0 && n-l.left >= l.refused && now < l.repeat {
		d := l.decision(now, limit)
		d.Allowed = false
		d.RetryAfter = max(time.Microsecond, l.told.RetryAfter-time.Duration(now-l.toldAt)*time.Microsecond)
		return d, true
	}
	return buckets.Decision{}, false
}

// decision is what passes now, by what the lender said last. l.mu must be held.
func (l *lease) decision(now, limit int64) buckets.Decision {
	return buckets.Decision{
		Allowed:    true,
		Limit:      limit,
		Remaining:  min(limit, l.left+l.told.Remaining),
		ResetAfter: max(0, l.told.ResetAfter-time.Duration(now-l.toldAt)*time.Microsecond),
	}
}

// arrived takes in the lender's answer to a request for took tokens that left at the instant sent,
// and decides the request that lacked need. l.mu must be held.
//
// What lapsed on the way counts for this one request, and is void for the next.
func (l *lease) arrived(f *fetch, sent, need, took int64, d buckets.Decision) buckets.Decision {
	l.told, l.toldAt = d, sent
	if d.Allowed {
		l.refused = 0
		l.lapses = sent + d.ResetAfter.Microseconds()
		l.end(f, took-need)
	} else {
		l.refused = need
		l.repeat = sent + min(d.RetryAfter, maxRepeat).Microseconds()
		l.end(f, f.held)
	}
	d.Remaining = min(d.Limit, d.Remaining+l.left)
	return d
}

// leases is the leases by key, bounded.
type leases struct {
	most int

	mu    sync.Mutex
	byKey map[string]*lease
}

// locked returns the key's lease, with its lock held. A key that is new pays for a look
// at a few others, of which those that have lapsed are forgotten.
func (s *leases) locked(key string, now int64) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byKey[key]
	if l == nil {
		s.forgetSome(now)
		l = &lease{}
		s.byKey[strings.Clone(key)] = l
	}
	l.mu.Lock() // before s.mu is let go, so that nobody forgets it in between
	return l
}

// forgetSome looks at a few leases and forgets the lapsed ones, and any one while there are too
// many. s.mu must be held.
func (s *leases) forgetSome(now int64) {
	looked := 0
	for key, l := range s.byKey { // in random order
		full := len(s.byKey) >= s.most
		if looked++; looked > 4 && !full {
			return
		}
		if l.forget(now, full) {
			delete(s.byKey, key)
		}
	}
}

// forget reports whether the lease may go: it has lapsed, or anyway is set. One that is being
// fetched stays.
func (l *lease) forget(now int64, anyway bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fetching == nil && (anyway || now >= max(l.lapses, l.repeat))
}

// left returns what is left of the key's lease.
func (s *leases) left(key string, now int64) int64 {
	s.mu.Lock()
	l := s.byKey[key]
	s.mu.Unlock()
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now >= l.lapses {
		return 0
	}
	return l.left
}

func (s *leases) drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byKey, key)
}
