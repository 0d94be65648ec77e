package shaper

import (
	"fmt"
	"slices"
	"sort"

	"github.com/jobshaper/jobshaper/buckets"
)

// mJob is a job as the model of all scripts knows it.
type mJob struct {
	id     string
	digest string // of what was offered
	wait   int64  // ms it may wait; 0 = as long as it likes
	st     string // n waiting and never out, l delayed, w o r c z x as in lua/lib/job.lua, or how it ended
	rel    int64
	att    int64
	given  bool // the last of them is granted, and not known to have begun
	fg     int64
	cr     int64
	th     int64
	tok    string
	since  int64
	at     int64 // score in the book that it stands in
	slot   int64
	left   int64 // when its ticket was released
}

func (j *mJob) ended() bool { return len(j.st) > 1 }

type mTenant struct {
	name       string
	rate       buckets.Rate
	depth, cap int64
	attempts   int64
	throttles  int64
	row        int64 // throttled starts in a row
	full       OnFull
	until      int64
	tl         exact
	wait       []string
	jobs       map[string]*mJob
	out, run   int64
	started    int64
}

type mPool struct{ places, deadline int64 }

// model predicts what every script answers and leaves behind.
type model struct {
	names             []string
	tenants           map[string]*mTenant
	rate              buckets.Rate // of the downstream; zero = none
	cap, until        int64
	tl                exact
	pools             map[string]*mPool
	last, from, mercy int64
	logged            map[string]int // entries of the departure log, by kind
}

func newModel(names []string) *model {
	return &model{names: names, tenants: map[string]*mTenant{}, pools: map[string]*mPool{}, logged: map[string]int{}}
}

const (
	mLease  = 15 * second
	mTicket = 5 * second
	mLead   = 20 * milli
	mGrace  = 10 * milli
	mEpoch  = 1
)

func (m *model) inFlight() (out, run int64) {
	for _, t := range m.tenants {
		out, run = out+t.out, run+t.run
	}
	return out, run
}

func (t *mTenant) level() int64 {
	n := int64(len(t.wait))
	for _, j := range t.jobs {
		if j.st == "l" || j.st == "z" {
			n++
		}
	}
	return n
}

func (t *mTenant) overdue(j *mJob, now int64) bool {
	return j.att == 0 && j.wait > 0 && now > j.since+j.wait*1000
}

func (t *mTenant) end(j *mJob, how string) {
	if i := slices.Index(t.wait, j.id); i >= 0 {
		t.wait = slices.Delete(t.wait, i, i+1)
	}
	j.st = how
}

// toFront puts back what was out: ahead of what never was, and among its like in the order of acceptance.
func (t *mTenant) toFront(j *mJob) {
	j.st = "w"
	i := 0
	for i < len(t.wait) {
		if o := t.jobs[t.wait[i]]; o.st == "n" || o.since > j.since || o.since == j.since && o.id > j.id {
			break
		}
		i++
	}
	t.wait = slices.Insert(t.wait, i, j.id)
}

// outs lists what is out, oldest first.
func (t *mTenant) outs() (l []*mJob) {
	for _, j := range t.jobs {
		if j.st == "o" {
			l = append(l, j)
		}
	}
	sort.Slice(l, func(i, k int) bool {
		if l[i].since != l[k].since {
			return l[i].since < l[k].since
		}
		return l[i].id < l[k].id
	})
	return l
}

// owned is the job that runs under a token.
func (t *mTenant) owned(tok string) *mJob {
	for _, j := range t.jobs {
		if (j.st == "r" || j.st == "c") && j.tok == tok {
			return j
		}
	}
	return nil
}

// inherit: a ticket is used up by another job than its own, which is out and waits for the ticket of that one from now on,
// but not beyond its own deadline.
func (t *mTenant) inherit(k Ticket, j *mJob) {
	if own := t.jobs[k.ID]; own != nil && own != j && own.st == "o" && own.rel == k.Release {
		own.at = min(own.at, j.at)
	}
}

// recede: a ticket starts nothing, and the youngest job that is out goes back.
func (t *mTenant) recede(k Ticket) {
	if l := t.outs(); len(l) > 0 {
		j := l[len(l)-1]
		t.inherit(k, j)
		t.left(j)
		t.toFront(j)
	}
}

// left takes a job off the books of what is in flight.
func (t *mTenant) left(j *mJob) {
	switch j.st {
	case "o":
		t.out--
	case "r", "c":
		t.run--
	}
}

// began counts a start, once.
func (t *mTenant) began(j *mJob) {
	if j.given {
		j.given = false
		t.started++
	}
}

// calledOff: the start that was granted never happens. One that was said to have begun is forgiven.
func (j *mJob) calledOff() {
	if j.given {
		j.given = false
		j.att--
	} else {
		j.fg++
	}
}

func (t *mTenant) bury(j *mJob, now int64) { j.st, j.at = "x", now }

func (t *mTenant) crash(j *mJob, now int64) {
	t.left(j)
	t.began(j)
	if j.st == "c" {
		t.end(j, "cancelled")
		return
	}
	j.cr, j.fg, j.tok = j.cr+1, j.fg+1, "-"
	if j.cr >= DefaultMaxCrashes {
		t.bury(j, now)
	} else {
		t.toFront(j)
	}
}

// book lists "tenant id" of jobs in one of some states whose score is at most until, by score.
func (m *model) book(until int64, states string) (l []*mJob, of []*mTenant) {
	type entry struct {
		t *mTenant
		j *mJob
	}
	var all []entry
	for _, t := range m.tenants {
		for _, j := range t.jobs {
			if len(j.st) == 1 && slices.Contains([]byte(states), j.st[0]) && j.at <= until {
				all = append(all, entry{t, j})
			}
		}
	}
	sort.Slice(all, func(i, k int) bool {
		a, b := all[i], all[k]
		if a.j.at != b.j.at {
			return a.j.at < b.j.at
		}
		return a.t.name+" "+a.j.id < b.t.name+" "+b.j.id
	})
	for _, e := range all {
		l, of = append(l, e.j), append(of, e.t)
	}
	return l, of
}

// lost brings back tickets that never came and jobs whose lease is over, as the first half of a release does.
func (m *model) lost(now int64) (tickets, crashes int) {
	over := now
	if m.last > 0 && now-m.last > 5*second {
		m.from, m.mercy = m.last, now+4*second
	}
	if now < m.mercy {
		over = m.from
	}
	m.last = now
	l, of := m.book(now, "o")
	for i := len(l) - 1; i >= 0; i-- {
		of[i].left(l[i])
		of[i].toFront(l[i])
	}
	tickets = len(l)
	l, of = m.book(over, "rc")
	for i := len(l) - 1; i >= 0; i-- {
		of[i].crash(l[i], now)
		m.logged["x"]++
	}
	return tickets, len(l)
}

// spared counts leases that ended and are not over yet, since nobody could extend them.
func (m *model) spared(now int64) int {
	l, _ := m.book(now, "rc")
	return len(l)
}

// dueLater lists a tenant's delayed jobs and retries that are due, by instant.
func (m *model) dueLater(t *mTenant, now int64) (l []*mJob) {
	all, of := m.book(now, "lz")
	for i, j := range all {
		if of[i] == t {
			l = append(l, j)
		}
	}
	return l
}

func (m *model) ripen(t *mTenant, now int64) {
	for _, j := range m.dueLater(t, now) {
		if j.st == "z" {
			t.toFront(j)
		} else {
			j.st = "n"
			t.wait = append(t.wait, j.id)
		}
	}
}

// ripe tells whether a tenant's head may leave now, if it has one.
func (m *model) ripe(t *mTenant, now int64) bool {
	out, _ := m.inFlight()
	return t.until <= now && m.until <= now && t.out+t.run < t.cap &&
		t.tl.likely(t.rate, t.out, now, mEpoch, mGrace) <= now+mLead &&
		(m.rate.IsZero() || m.tl.likely(m.rate, out, now, mEpoch, mGrace) <= now+mLead)
}

// releasable tells whether a tenant has a job that may start.
func (m *model) releasable(t *mTenant, now int64) bool {
	for _, id := range t.wait {
		if !t.overdue(t.jobs[id], now) {
			return true
		}
	}
	for _, j := range m.dueLater(t, now) {
		if j.st == "z" || !t.overdue(j, now) {
			return true
		}
	}
	return false
}

// free is how many tickets the live pools and the downstream's cap leave room for.
func (m *model) free(now int64) int64 {
	n := int64(0)
	for name, p := range m.pools {
		if p.deadline >= now {
			n += max(0, p.places-m.runs(name))
		}
	}
	out, run := m.inFlight()
	n -= out
	if m.cap > 0 {
		n = min(n, m.cap-out-run)
	}
	return n
}

// runs counts the jobs that a pool runs.
func (m *model) runs(pool string) (n int64) {
	l, _ := m.book(1<<62, "rc")
	for _, j := range l {
		if poolOf(j.tok) == pool {
			n++
		}
	}
	return n
}

// slot is what a start of t gets now.
func (m *model) slot(t *mTenant, now int64) int64 {
	s := t.tl.earliest(t.rate, now, mEpoch, mGrace)
	if !m.rate.IsZero() {
		s = max(s, m.tl.earliest(m.rate, now, mEpoch, mGrace))
	}
	return s
}

func (m *model) enter(t *mTenant, j *mJob, slot, now int64, tok string) {
	m.logged["g"]++
	t.tl.grant(t.rate, slot, now, mEpoch)
	if !m.rate.IsZero() {
		m.tl.grant(m.rate, slot, now, mEpoch)
	}
	t.run++
	if j.st != "r" { // else it missed a slot, and this start is the same
		j.att++
		j.given = true
	}
	j.st, j.tok, j.slot, j.at = "r", tok, slot, max(slot, now)+mLease
}

// taken follows what a pick took to be run at once: the oldest job that is out and has not waited too long, else the head.
func (m *model) taken(t *mTenant, id string, now int64) (*mJob, bool, error) {
	for _, j := range t.outs() {
		over := t.overdue(j, now)
		t.left(j)
		switch {
		case over && j.id == id:
			return nil, false, fmt.Errorf("%s was chained, and had waited too long", id)
		case over:
			t.end(j, "expired")
		case j.id != id:
			return nil, false, fmt.Errorf("%s was chained before %s, which was out", id, j.id)
		default:
			m.ripen(t, now)
			return j, true, nil
		}
	}
	j, err := m.popped(t, id, now)
	return j, false, err
}

// popped follows what a pick took from the head of a bucket: expired jobs, and then the one that left.
func (m *model) popped(t *mTenant, id string, now int64) (*mJob, error) {
	m.ripen(t, now)
	for len(t.wait) > 0 {
		j := t.jobs[t.wait[0]]
		if j.id == id {
			if t.overdue(j, now) {
				return nil, fmt.Errorf("%s left, and had waited too long", id)
			}
			t.wait = t.wait[1:]
			j.rel++
			return j, nil
		}
		if !t.overdue(j, now) {
			return nil, fmt.Errorf("%s left before %s, which stood at the head of %v", id, j.id, t.wait)
		}
		t.end(j, "expired")
	}
	return nil, fmt.Errorf("%s left, and did not wait", id)
}

// settle takes over what a pick may have done to a tenant besides handing out its jobs: ripened what is due, and ended
// what stood at the head, or was the oldest that is out, and had waited too long.
func (m *model) settle(t *mTenant, wait []string, later, outs map[string]string, now int64) {
	for _, j := range m.dueLater(t, now) {
		if _, still := later[j.id]; !still {
			m.ripen(t, now)
			break
		}
	}
	for _, id := range slices.Clone(t.wait) {
		if j := t.jobs[id]; slices.Contains(wait, id) || !t.overdue(j, now) {
			break
		}
		t.end(t.jobs[id], "expired")
	}
	for _, j := range t.outs() {
		if _, still := outs[j.id]; still || !t.overdue(j, now) {
			break
		}
		t.left(j)
		t.end(j, "expired")
	}
}
