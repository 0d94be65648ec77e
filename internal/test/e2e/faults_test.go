package e2e

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// fault is something that a storm breaks. inflict does it once, and returns true; or false, if
// there is nothing to break. What must be mended later goes to storm.after.
type fault struct {
	name    string
	weight  int
	inflict func(*storm) bool
}

// storm breaks things at random while producers and daemons run. Its methods belong to the test's
// goroutine.
type storm struct {
	*rig
	chance    *rand.Rand
	ledger    *ledger
	faults    []fault
	rates     map[string]buckets.Rate // of the tenants, as they were at the start
	tenants   []string
	daemons   []*process
	producers []*process
	spared    int // the first so many daemons are not killed, so that they grow old
	later     []mend
	paused    map[string]bool
	stopped   map[*process]bool
	unmended  time.Duration // how long a stop lasts at most
}

// mend is what ends a fault.
type mend struct {
	at time.Time
	do func()
}

func newStorm(r *rig, seed uint64, faults []fault) *storm {
	return &storm{rig: r, chance: rand.New(rand.NewPCG(seed, 0)), ledger: newLedger(r), faults: faults,
		rates: map[string]buckets.Rate{}, paused: map[string]bool{}, stopped: map[*process]bool{}, unmended: 3 * time.Second}
}

// kinds is the mix of faults of a soak.
var kinds = []fault{
	{"kill", 22, (*storm).killDaemon},
	{"stop", 12, (*storm).stopDaemon},
	{"rate", 10, (*storm).changeRate},
	{"cancel", 10, (*storm).cancelJobs},
	{"pause", 8, (*storm).pauseTenant},
	{"terminate", 5, (*storm).terminateDaemon},
	{"producer", 4, (*storm).killProducer},
	{"requeue", 4, (*storm).requeueDead},
	{"scripts", 4, (*storm).flushScripts},
	{"redis", 3, (*storm).killRedis},
}

// rage inflicts faults for d, with a pause of 0 to 2·mean between them. Meanwhile it calls look,
// several times a second.
func (s *storm) rage(d, mean time.Duration, look func()) {
	s.t.Helper()
	total := 0
	for _, f := range s.faults {
		total += f.weight
	}
	next := time.Now()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		s.mendDue()
		s.ledger.read()
		look()
		if time.Now().Before(next) {
			continue
		}
		n := s.chance.IntN(total)
		for _, f := range s.faults {
			if n -= f.weight; n >= 0 {
				continue
			}
			if f.inflict(s) {
				s.must(s.rec.Record(history.Event{Kind: history.Fault, Outcome: f.name}))
			}
			break
		}
		next = time.Now().Add(s.upTo(2 * mean))
	}
}

func (s *storm) upTo(d time.Duration) time.Duration { return time.Duration(s.chance.Int64N(int64(d))) }

func (s *storm) after(d time.Duration, do func()) {
	s.later = append(s.later, mend{time.Now().Add(d), do})
}

// mendDue mends what is due.
func (s *storm) mendDue() {
	var rest, due []mend
	for _, m := range s.later {
		if time.Now().Before(m.at) {
			rest = append(rest, m)
		} else {
			due = append(due, m)
		}
	}
	s.later = rest
	for _, m := range due {
		m.do()
	}
}

// mendAll mends everything at once.
func (s *storm) mendAll() {
	later := s.later
	s.later = nil
	for _, m := range later {
		m.do()
	}
}

// insist does something that needs Redis until it succeeds.
func (s *storm) insist(doing string, call func(context.Context) error) {
	s.t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(20 * time.Millisecond) {
		if err = call(context.Background()); err == nil {
			return
		}
	}
	s.t.Fatalf("%s: %v", doing, err)
}

func (s *storm) anyTenant() string { return s.tenants[s.chance.IntN(len(s.tenants))] }

// setRate changes a tenant's rate, and writes down when.
func (s *storm) setRate(tenant string, rate buckets.Rate) {
	s.t.Helper()
	e := history.Event{Kind: history.Set, Tenant: tenant, Outcome: rate.String()}
	s.must(s.rec.Record(e))
	s.insist("set a rate", func(ctx context.Context) error { return s.admin.SetTenant(ctx, tenant, shaper.Policy{Rate: rate}) })
	s.must(s.rec.Record(e))
}

// victim is a daemon that may be killed.
func (s *storm) victim() (int, *process) {
	i := s.spared + s.chance.IntN(len(s.daemons)-s.spared)
	return i, s.daemons[i]
}

func (s *storm) killDaemon() bool {
	i, p := s.victim()
	p.kill()
	p.silent = true
	delete(s.stopped, p)
	s.daemons[i] = s.start(p.role)
	return true
}

func (s *storm) terminateDaemon() bool {
	i, p := s.victim()
	if s.stopped[p] {
		return false
	}
	p.terminate()
	p.end()
	p.cut() // what ran on beyond its context has ended with it
	p.silent = true
	s.daemons[i] = s.start(p.role)
	return true
}

func (s *storm) stopDaemon() bool {
	p := s.daemons[s.chance.IntN(len(s.daemons))]
	if s.stopped[p] {
		return false
	}
	s.stopped[p] = true
	p.stop()
	s.after(s.upTo(s.unmended), func() {
		if s.stopped[p] {
			delete(s.stopped, p)
			p.goOn()
		}
	})
	return true
}

func (s *storm) killProducer() bool {
	if len(s.producers) == 0 {
		return false
	}
	i := s.chance.IntN(len(s.producers))
	s.producers[i].kill()
	s.producers[i] = s.start(s.producers[i].role)
	return true
}

// killRedis kills Redis, which comes back from its append-only file.
func (s *storm) killRedis() bool {
	s.must(s.rec.Record(history.Event{Kind: history.Down}))
	s.server.Kill()
	time.Sleep(s.upTo(700 * time.Millisecond))
	s.server.Restart()
	s.must(s.rec.Record(history.Event{Kind: history.Up}))
	return true
}

func (s *storm) flushScripts() bool {
	s.insist("flush scripts", func(ctx context.Context) error { return s.rdb.ScriptFlush(ctx).Err() })
	return true
}

// pauseTenant pauses a tenant, or, rarely, all of them: half of the times for a while, half until
// it is resumed.
func (s *storm) pauseTenant() bool {
	tenant := s.anyTenant()
	if s.chance.IntN(10) == 0 {
		tenant = ""
	}
	if s.paused[tenant] {
		return false
	}
	d := s.upTo(time.Second) + time.Millisecond
	if s.chance.IntN(2) == 0 {
		s.insist("pause", func(ctx context.Context) error { return s.admin.Pause(ctx, tenant, d) })
		return true
	}
	s.paused[tenant] = true
	s.insist("pause", func(ctx context.Context) error { return s.admin.Pause(ctx, tenant, 0) })
	s.after(d, func() {
		delete(s.paused, tenant)
		s.insist("resume", func(ctx context.Context) error { return s.admin.Resume(ctx, tenant) })
	})
	return true
}

// changeRate makes a tenant half, twice or three times as fast as it was at the start, or just as
// fast.
func (s *storm) changeRate() bool {
	tenant := s.anyTenant()
	rate := s.rates[tenant]
	switch s.chance.IntN(4) {
	case 0:
		rate.Period *= 2
	case 1:
		rate.Events *= 2
	case 2:
		rate.Events *= 3
	}
	s.setRate(tenant, rate)
	return true
}

// cancelJobs cancels some jobs that have not ended.
func (s *storm) cancelJobs() bool {
	const most = 5
	var jobs []name
	for n := range s.ledger.open {
		if jobs = append(jobs, n); len(jobs) == most {
			break
		}
	}
	for _, n := range jobs {
		state, err := s.client.Cancel(context.Background(), n.tenant, n.id)
		if err == nil && state == shaper.StateCancelled {
			s.ledger.ended(n, history.Cancelled)
		}
	}
	return len(jobs) > 0
}

// requeueDead brings a tenant's dead jobs back, as many as there is room for.
func (s *storm) requeueDead() bool {
	tenant, n := s.anyTenant(), 0
	s.insist("requeue", func(ctx context.Context) (err error) {
		n, _, err = s.admin.RequeueDead(ctx, tenant)
		return err
	})
	return n > 0
}
