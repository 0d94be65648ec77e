package shaper

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/redistest"
)

// seedVar runs one sequence of TestScriptsFollowTheModel again, with its steps printed.
const seedVar = "SHAPER_MODEL_SEED"

// TestScriptsFollowTheModel lets random sequences of every script run against a model in Go: jobs offered twice or to a full
// bucket, tickets lost, doubled and late, starts that crash, fail, are throttled and cancelled, policies that change below
// all this. Each call is made one to three times, as a client does whose reply was lost. After each step the whole of Redis
// is what the model says, and no tenant with something to release is left out of the books. In the end all that was
// accepted has ended.
func TestScriptsFollowTheModel(t *testing.T) {
	if testing.Short() {
		runModel(t, redistest.Start(t).Client(), 200)
		return
	}
	runModel(t, redistest.Start(t).Client(), 500, mustHappen...)
}

func TestScriptsFollowTheModelOnMiniredis(t *testing.T) { runModel(t, redistest.Mini(t), 40) }

// runModel runs so many sequences, and as many more as it takes until all that must happen has happened: the rarest comes once in some
// three hundred, so that twenty times as many are not reached.
func runModel(t *testing.T, rdb redis.UniversalClient, sequences int, must ...string) {
	if s, err := strconv.ParseUint(os.Getenv(seedVar), 10, 64); err == nil {
		sequence(t, rdb, s, new(sync.Map), true)
		return
	}
	first := rand.Uint64() >> 16
	const players = 4 // one waits for Redis while another checks
	var happened sync.Map
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(must), func(what string) bool { _, ok := happened.Load(what); return ok })
	}
	t.Cleanup(func() {
		if l := missing(); len(l) > 0 && !t.Failed() {
			t.Errorf("in %d sequences these have not happened: %q", 20*sequences, l)
		}
	})
	for i := range players {
		t.Run(fmt.Sprint("player ", i), func(t *testing.T) {
			t.Parallel()
			for k := i; k < sequences || k < 20*sequences && len(missing()) > 0; k += players {
				if sequence(t, rdb, first+uint64(k), &happened, false); t.Failed() {
					t.Fatalf("sequence %d failed; %s=%d runs it again", k, seedVar, first+uint64(k))
				}
			}
		})
	}
}

// player makes random steps, and tells the model of each.
type player struct {
	*world
	r        *rand.Rand
	m        *model
	ids      []string
	calls    []call
	order    func(*mTenant, *mJob) // is told of every first attempt
	tickets  []Ticket              // all that were ever handed out
	grants   []*Grant              // all that were ever granted
	tokens   int
	trace    []string
	happened *sync.Map
}

// mustHappen is what the sequences have to meet, or they prove nothing about it.
var mustHappen = []string{"offer accepted", "offer duplicate", "offer conflict", "offer dead", "offer anew", "offer full", "offer block", "gate true ", "gate true expired",
	"gate true paused", "gate false ", "gate false gone", "gate false early", "finish done", "finish retry",
	"finish dead", "finish back", "finish cancelled", "finish stale", "next", "cancel ", "cancel cancelled", "cancel running",
	"cancel done", "dead requeue 0", "dead requeue 1", "dead forget 0", "lost ticket", "crash", "spared lease",
	"gate other", "gate stale", "receipt", "another went back", "next that was out", "called off", "dead by throttles", "uncharged", "begun by a beat", "batch of a tenant", "batch of tenants"}

func (p *player) seen(what string) { p.happened.Store(what, true) }

func sequence(t *testing.T, rdb redis.UniversalClient, seed uint64, happened *sync.Map, loud bool) {
	p := &player{world: newWorld(t, rdb), r: rand.New(rand.NewPCG(seed, 0)), happened: happened,
		m: newModel([]string{"a", "b", "c"}[:1+seed%3])}
	defer func() {
		if t.Failed() || loud {
			t.Logf("steps:\n%s", strings.Join(p.trace, "\n"))
		}
	}()
	for i := range 4 + p.r.IntN(4) {
		p.ids = append(p.ids, fmt.Sprint("j", i))
	}
	for _, name := range p.m.names {
		p.m.tenants[name] = &mTenant{name: name, jobs: map[string]*mJob{}}
		p.policy(name)
	}
	if p.r.IntN(3) == 0 {
		p.m.rate = pick(p.r, rates)
	}
	p.setDownstream(DownstreamPolicy{Rate: p.m.rate, DepartureLog: 10_000})
	p.m.logged["o"] = 1
	p.beat("p1", 3, time.Hour)
	for range 20 + p.r.IntN(40) {
		p.step()
		if p.check(); t.Failed() {
			return
		}
	}
	p.drain()
}

var rates = []buckets.Rate{rate(7, time.Second), rate(100, time.Second), rate(1000, time.Second), rate(3, 33333*time.Microsecond)}

func pick[T any](r *rand.Rand, l []T) T { return l[r.IntN(len(l))] }

func (p *player) log(format string, args ...any) {
	p.trace = append(p.trace, fmt.Sprintf("%9d ", p.now-t0)+fmt.Sprintf(format, args...))
}

func (p *player) tenant() *mTenant { return p.m.tenants[pick(p.r, p.m.names)] }

// live picks one of those for which good holds, mostly; and one of the last ones else, whatever became of it.
func live[T any](p *player, l []T, good func(T) bool) (T, bool) {
	var best []T
	for _, v := range l {
		if good(v) {
			best = append(best, v)
		}
	}
	switch {
	case len(best) > 0 && p.r.IntN(4) > 0:
		return pick(p.r, best), true
	case len(l) > 0:
		return l[max(0, len(l)-1-p.r.IntN(5))], true
	}
	var none T
	return none, false
}

func (p *player) valid(k Ticket) bool {
	j := p.m.tenants[k.Tenant].jobs[k.ID]
	return j != nil && j.st == "o" && j.rel == k.Release
}

func (p *player) owns(g *Grant) bool {
	j := p.m.tenants[g.Tenant].jobs[g.ID]
	return j != nil && j.tok == g.Token && (j.st == "r" || j.st == "c")
}

func (p *player) token() string {
	p.tokens++
	return fmt.Sprintf("p%d.%d", 1+p.r.IntN(2), p.tokens)
}

func (p *player) look() view { return look(p.world, p.m.names, p.ids) }

func (p *player) check() {
	p.t.Helper()
	if err := p.m.diff(p.look(), p.now); err != nil {
		p.t.Error(err)
	}
}

// repeat makes a call once, or some times with the same arguments; repeating it must change nothing and answer the same.
func (p *player) repeat(call func() string, same bool) string {
	p.t.Helper()
	answer := call()
	times := p.r.IntN(3)
	if times == 0 {
		return answer
	}
	before := p.look().String()
	for range times {
		if again := call(); same && again != answer {
			p.t.Errorf("the call was repeated, and answered %s after %s", again, answer)
		}
	}
	if after := p.look().String(); after != before {
		p.t.Errorf("the call was repeated, and changed\n%s\nto\n%s", before, after)
	}
	return answer
}

func (p *player) step() {
	steps := []struct {
		weight int
		do     func()
	}{
		{18, p.stepOffer}, {18, p.stepRelease}, {22, p.stepGate}, {6, p.stepAgain}, {2, p.stepReplay}, {14, p.stepFinish}, {8, p.stepBatch}, {3, p.stepGiveBack},
		{5, p.stepCancel}, {6, p.stepDead}, {4, p.stepPause}, {3, func() { p.policy(p.tenant().name) }}, {1, p.stepPurge},
		{4, p.stepBeat}, {6, p.stepTime}, {3, p.stepSilence}, {2, p.stepForget}, {2, p.stepCap},
	}
	sum := 0
	for _, s := range steps {
		sum += s.weight
	}
	n := p.r.IntN(sum)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			s.do()
			p.pass(pick(p.r, []int64{1, 1, 5 * milli, 40 * milli, 150 * milli}))
			return
		}
	}
}

func (p *player) stepTime() {
	d := pick(p.r, []int64{100 * milli, 400 * milli, second, second, 4 * second, 6 * second, 16 * second})
	p.log("%v pass", time.Duration(d)*time.Microsecond)
	p.pass(d)
}

// stepSilence lets the workers be silent for longer than a lease, while schedulers go on.
func (p *player) stepSilence() {
	p.log("silence")
	for range 5 {
		p.pass(4 * second)
		p.release(0, 1)
	}
}

// stepForget lets the retention of an ended job be over.
func (p *player) stepForget() {
	t, id := p.tenant(), pick(p.r, p.ids)
	if j := t.jobs[id]; j != nil && j.ended() {
		p.log("retention of %s %s over", t.name, id)
		p.must(p.rdb.Del(p.t.Context(), p.q.endKey(t.name, id)).Err())
		delete(t.jobs, id)
	}
}

func (p *player) stepCap() {
	p.m.cap = int64(p.r.IntN(4))
	p.log("cap of the downstream %d", p.m.cap)
	p.repeat(func() string {
		err := p.admin.setPolicy(p.t.Context(), "", []string{"cap", fmt.Sprint(p.m.cap)})
		p.must(err)
		return ""
	}, true)
}

// policy gives a tenant new limits.
func (p *player) policy(name string) {
	t := p.m.tenants[name]
	t.rate, t.depth, t.cap = pick(p.r, rates), int64(1+p.r.IntN(5)), int64(1+p.r.IntN(3))
	t.attempts, t.throttles, t.full = int64(1+p.r.IntN(3)), int64(1+p.r.IntN(3)), pick(p.r, []OnFull{Reject, DropOldest, Block})
	p.log("policy of %s: %v, depth %d, cap %d, attempts %d, throttles %d, %s", name, t.rate, t.depth, t.cap, t.attempts, t.throttles, t.full)
	p.repeat(func() string {
		p.set(name, Policy{Rate: t.rate, Depth: int(t.depth), MaxInFlight: int(t.cap), MaxAttempts: int(t.attempts),
			MaxThrottles: int(t.throttles), OnFull: t.full})
		return ""
	}, true)
}

// left counts jobs that have not ended.
func (p *player) left() (n int) {
	for _, t := range p.m.tenants {
		for _, j := range t.jobs {
			if !j.ended() && j.st != "x" {
				n++
			}
		}
	}
	return n
}

// drain lets all that is left run to an end.
func (p *player) drain() {
	p.log("drain")
	for _, name := range append([]string{""}, p.m.names...) {
		p.pause(name, 0)
	}
	p.m.cap = 0
	err := p.admin.setPolicy(p.t.Context(), "", []string{"cap", "0"})
	p.must(err)
	p.beat("p1", 4, time.Hour)
	for i := 0; p.left() > 0 && !p.t.Failed(); i++ {
		if i == 400 {
			p.t.Errorf("%d jobs did not end", p.left())
		}
		held := len(p.tickets)
		p.release(4, 1)
		for _, t := range slices.Clone(p.tickets[held:]) {
			p.enter(t, "-", p.token())
		}
		for _, g := range p.grants {
			if p.owns(g) {
				p.finish(g, EndOK, 0, "-")
			}
		}
		p.check()
		p.pass(second)
	}
}
