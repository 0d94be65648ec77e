package shaper

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// seedVar runs one sequence of a test of random sequences again, with its steps printed.
const seedVar = "SHAPER_MODEL_SEED"

// TestScriptsFollowTheModel runs random sequences of all scripts against the model: jobs offered
// twice or to a full bucket, tickets lost, doubled and late, starts that crash, fail, are throttled
// and cancelled, and policies that change meanwhile. Each call is made one to three times, as by a
// client whose reply was lost. The model predicts every answer and, after each step, everything in
// Redis. Slots are what an independent arithmetic of the promise says, and no tenant with something
// to release is missing from the books. In the end all that was accepted has ended.
func TestScriptsFollowTheModel(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		runModel(t, redistest.Start(t).Client(), 12)
		return
	}
	runModel(t, redistest.Start(t).Client(), 40, mustHappen...)
}

func TestScriptsFollowTheModelOnMiniredis(t *testing.T) {
	t.Parallel()
	sequences := 4
	if testing.Short() {
		sequences = 2
	}
	runModel(t, redistest.Mini(t), sequences)
}

// runModel runs so many sequences, and more until all that must happen has happened.
func runModel(t *testing.T, rdb redis.UniversalClient, sequences int, must ...string) {
	untilAllHappened(t, sequences, must, func(t *testing.T, seed uint64, happened *sync.Map, loud bool) {
		sequence(t, rdb, seed, happened, loud)
	})
}

// untilAllHappened plays so many random sequences, and as many more as it takes until all that must
// happen has happened. The rarest comes once in some thirty sequences, so twenty times as many are
// never needed.
func untilAllHappened(t *testing.T, sequences int, must []string, play func(t *testing.T, seed uint64, happened *sync.Map, loud bool)) {
	var happened sync.Map
	if s, err := strconv.ParseUint(os.Getenv(seedVar), 10, 64); err == nil {
		play(t, s, &happened, true)
		return
	}
	first := rand.Uint64() >> 16
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(must), func(what string) bool { _, ok := happened.Load(what); return ok })
	}
	t.Cleanup(func() {
		if l := missing(); len(l) > 0 && !t.Failed() {
			t.Errorf("in %d sequences these have not happened: %q", 20*sequences, l)
		}
	})
	together(t, func(t *testing.T, player int) {
		for k := player; k < sequences || k < 20*sequences && len(missing()) > 0; k += players {
			if play(t, first+uint64(k), &happened, false); t.Failed() {
				t.Fatalf("sequence %d failed; %s=%d runs it again", k, seedVar, first+uint64(k))
			}
		}
	})
}

const players = 4

// together has players share the work of a test: one waits for Redis while another checks.
func together(t *testing.T, play func(t *testing.T, player int)) {
	for i := range players {
		t.Run(fmt.Sprint("player ", i), func(t *testing.T) {
			t.Parallel()
			play(t, i)
		})
	}
}

// player makes random steps on the scripts, and predicts each with the model.
type player struct {
	*world
	r        *rand.Rand
	m        *model.Downstream
	names    []string // of tenants
	ids      []string // of jobs
	exacts   map[string]*exact
	common   exact
	booked   int // entries of the log that were held to the book
	epoch    int64
	trip     time.Duration    // of the scheduler
	left     map[string]int64 // when the ticket of "tenant id" left
	calls    []call
	order    func(*model.Job) // is told of every first attempt
	tickets  []model.Ticket   // all that were ever handed out
	grants   []*model.Grant   // all that were ever granted
	tokens   int
	offered  int
	trace    []string
	happened *sync.Map
	reply    any // of the last read; nil after a call
}

const mGrace = 10 * milli

// lead is how long before its slot a ticket leaves.
func (p *player) lead() int64 { return 20*milli + p.m.Reach.Microseconds() }

func newPlayer(w *world, seed uint64, happened *sync.Map, names ...string) *player {
	return &player{world: w, r: rand.New(rand.NewPCG(seed, 0)), happened: happened, names: names, epoch: 1,
		exacts: map[string]*exact{}, left: map[string]int64{}}
}

// begin gives the downstream its policy.
func (p *player) begin(rate buckets.Rate) {
	to := model.DownstreamPolicy{Rate: rate, Shared: p.r.IntN(3) == 0, Log: true, Defaults: model.Policy{MaxEnds: 64}} // as many as are in one page
	p.m = model.New(p.now, to)
	p.m.Epoch = p.epoch
	p.m.SetDownstream(to) // its timeline is looked at since then
	p.scripts().SetDownstream(to)
}

// model returns the model, at the present instant.
func (p *player) model() *model.Downstream {
	p.m.Set(p.now)
	return p.m
}

// mustHappen is what the sequences have to meet, or they prove nothing about it.
var mustHappen = []string{"offer accepted", "offer duplicate", "offer conflict", "offer dead", "offer anew", "offer full", "offer block", "gate true ", "gate true expired",
	"gate true paused", "gate false ", "gate false gone", "gate false early", "finish done", "finish retry",
	"finish dead", "finish back", "finish cancelled", "finish stale", "next", "cancel ", "cancel cancelled", "cancel running",
	"cancel done", "dead requeue 0", "dead requeue 1", "dead forget 0", "lost ticket", "crash", "blamed", "suspected", "set aside", "spared lease",
	"gate other", "gate stale", "receipt", "another went back", "next that was out", "called off", "dead by throttles", "uncharged", "begun by a beat", "batch of a tenant", "batch of tenants", "restart", "kept its place", "longer lead", "shorter lead",
	"end evicted", "end over"}

func (p *player) seen(what string) { p.happened.Store(what, true) }

func sequence(t *testing.T, rdb redis.UniversalClient, seed uint64, happened *sync.Map, loud bool) {
	p := newPlayer(newWorld(t, rdb), seed, happened, []string{"a", "b", "c"}[:[]int{1, 2, 2, 3, 3}[seed%5]]...)
	defer func() {
		if t.Failed() || loud {
			t.Logf("steps:\n%s", strings.Join(p.trace, "\n"))
		}
	}()
	for i := range 4 + p.r.IntN(4) {
		p.ids = append(p.ids, fmt.Sprint("j", i))
	}
	common := buckets.Rate{}
	if p.r.IntN(3) == 0 {
		common = pick(p.r, rates)
	}
	p.begin(common)
	for _, name := range p.names {
		p.policy(name)
	}
	p.beat("p1", 3, time.Hour)
	for range 40 + p.r.IntN(120) {
		p.step()
		if p.checkAfter(loud); t.Failed() {
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

func (p *player) tenant() *model.Tenant { return p.m.Tenant(pick(p.r, p.names)) }

// live mostly picks one of those for which good is true, and otherwise one of the last, whatever
// became of it.
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

func (p *player) valid(k model.Ticket) bool {
	j := p.m.Job(k.Tenant, k.ID)
	return j != nil && j.State == model.Out && j.Releases == k.Release
}

func (p *player) owns(g *model.Grant) bool {
	return p.m.Job(g.Tenant, g.ID).Owned(g.Token)
}

func (p *player) token() string {
	p.tokens++
	return fmt.Sprintf("p%d.%d", 1+p.r.IntN(2), p.tokens)
}

// tokenOf is another token of the pool that holds a grant: a pool asks for its own jobs only.
func (p *player) tokenOf(g *model.Grant) string { return poolOf(g.Token) + p.token()[2:] }

// read returns what Redis holds, as lookScript tells it. It asks anew when a call was made since.
func (p *player) read() any {
	if p.reply == nil {
		p.reply = read(p.world, p.names)
	}
	return p.reply
}

// scripts makes calls on Redis.
func (p *player) scripts() model.Queue {
	p.reply = nil
	return scripted{p.world}
}

func (p *player) same(what, got, want string) {
	p.t.Helper()
	if got != want {
		p.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// both makes a call of the model and of the scripts. They answer the same.
func (p *player) both(what string, call func(model.Queue) string) (answer string) {
	p.t.Helper()
	answer = call(p.model())
	p.log("%s: %s", what, answer)
	p.same(what, call(p.scripts()), answer)
	return answer
}

// repeat makes a call, and perhaps again.
func (p *player) repeat(what string, call func(model.Queue) string, same bool) {
	p.t.Helper()
	p.again(what, p.both(what, call), call, same)
}

// again makes a call that was just made, and had an answer, up to two times more. That changes
// nothing; same: it is answered the same.
func (p *player) again(what, first string, call func(model.Queue) string, same bool) {
	p.t.Helper()
	times := p.r.IntN(3)
	if times == 0 {
		return
	}
	before := p.read()
	for range times {
		if answer := p.both(what+", repeated", call); same && answer != first {
			p.t.Errorf("%s was repeated, and answered %s after %s", what, answer, first)
		}
	}
	if after := p.read(); !reflect.DeepEqual(after, before) { // except perhaps the order of a hash's fields
		if before, after := viewOf(before, p.names), viewOf(after, p.names); !reflect.DeepEqual(after, before) {
			p.t.Errorf("%s was repeated, and changed\n%v\nto\n%v", what, before, after)
		}
	}
}

func (p *player) step() {
	steps := []struct {
		weight int
		do     func()
	}{
		{18, p.stepOffer}, {18, p.stepRelease}, {22, p.stepGate}, {6, p.stepAgain}, {5, p.stepReplay}, {14, p.stepFinish}, {10, p.stepBatch}, {3, p.stepGiveBack},
		{5, p.stepCancel}, {6, p.stepDead}, {4, p.stepPause}, {3, func() { p.policy(p.tenant().Name) }}, {1, p.stepPurge},
		{4, p.stepBeat}, {6, p.stepTime}, {3, p.stepSilence}, {2, p.stepForget}, {2, p.stepDownstream}, {2, p.stepRestart},
	}
	sum := 0
	for _, s := range steps {
		sum += s.weight
	}
	for done := len(p.trace); len(p.trace) == done; { // some find nothing to do
		n := p.r.IntN(sum)
		for _, s := range steps {
			if n -= s.weight; n < 0 {
				s.do()
				break
			}
		}
	}
	p.pass(pick(p.r, []int64{1, 1, 5 * milli, 40 * milli, 150 * milli}))
}

func (p *player) stepTime() {
	d := pick(p.r, []int64{100 * milli, 400 * milli, second, second, 4 * second, 6 * second, crashLease + second})
	p.log("%v pass", time.Duration(d)*time.Microsecond)
	if p.pass(d); d > crashLease { // no scheduler was there
		p.release(0, 1)
	}
}

// stepSilence lets the workers be silent for longer than a lease, while schedulers go on.
func (p *player) stepSilence() {
	p.log("silence")
	for range 5 {
		p.pass(4 * second)
		p.release(0, 1)
	}
}

// stepForget lets the shortest retention pass.
func (p *player) stepForget() {
	p.log("a minute passes")
	n := p.ends()
	p.pass(61 * second)
	if p.release(0, 1); p.ends() < n {
		p.seen("end over")
	}
}

// ends is how many ends are kept.
func (p *player) ends() (n int) {
	for _, t := range p.m.Tenants {
		n += len(t.Ends)
	}
	return n
}

// stepRestart makes the Redis look like another one that holds the same.
func (p *player) stepRestart() {
	p.seen("restart")
	p.pass(1) // nothing happens at the instant itself
	p.must(p.rdb.HSet(p.t.Context(), p.q.DownstreamKey(), "rid", "another").Err())
	p.epoch = p.now
	p.model().Restart()
	for _, e := range append(slices.Collect(maps.Values(p.exacts)), &p.common) {
		e.ahead = p.m.Ahead
	}
	p.policyOfAll(p.m.Policy) // a call that notices it
}

// stepDownstream changes the cap of the downstream, or its rate and spacing.
func (p *player) stepDownstream() {
	to := p.m.Policy
	switch p.r.IntN(4) {
	case 0, 1:
		to.MaxInFlight = p.r.Int64N(4)
	case 2:
		to.MaxEnds = 4 + p.r.Int64N(8)
	default:
		to.Rate, to.Shared = pick(p.r, append([]buckets.Rate{{}, {}}, rates...)), p.r.IntN(2) == 0
	}
	p.policyOfAll(to)
}

func (p *player) policyOfAll(to model.DownstreamPolicy) {
	p.repeat(fmt.Sprintf("policy: %v, cap %d", to.Rate, to.MaxInFlight), func(q model.Queue) string { q.SetDownstream(to); return "" }, true)
}

// policy gives a tenant new limits.
func (p *player) policy(name string) {
	p.setTenant(name, model.Policy{Rate: pick(p.r, append(rates[1:], rates...)), Depth: 1 + p.r.Int64N(5), MaxInFlight: 1 + p.r.Int64N(4), MaxAttempts: 1 + p.r.Int64N(3),
		MaxThrottles: 1 + p.r.Int64N(3), OnFull: pick(p.r, []string{"reject", "drop-oldest", "block"}), Weight: pick(p.r, []int64{1, 1, 2, 3}),
		MaxWait: pick(p.r, []time.Duration{0, -1, -1, 2 * time.Second}), Retention: pick(p.r, []time.Duration{time.Minute, time.Hour}),
		MaxEnds: 3 + p.r.Int64N(6)})
}

func (p *player) setTenant(name string, to model.Policy) {
	p.repeat(fmt.Sprintf("policy of %s: %+v", name, to), func(q model.Queue) string { q.SetTenant(name, to); return "" }, true)
}

// unfinished counts jobs that have not ended.
func (p *player) unfinished() (n int) {
	for _, t := range p.m.Tenants {
		for _, j := range t.Jobs {
			if !j.Ended() && j.State != model.Dead {
				n++
			}
		}
	}
	return n
}

// drain lets all that is left run to an end.
func (p *player) drain() {
	p.log("drain")
	for _, name := range append([]string{""}, p.names...) {
		p.pause(name, 0)
	}
	to := p.m.Policy
	to.MaxInFlight = 0
	p.policyOfAll(to)
	p.beat("p1", 4, time.Hour)
	for i := 0; p.unfinished() > 0 && !p.t.Failed(); i++ {
		if i == 400 {
			p.t.Errorf("%d jobs did not end", p.unfinished())
		}
		held := len(p.tickets)
		p.release(4, 1)
		for _, t := range slices.Clone(p.tickets[held:]) {
			p.enter(t, p.token())
		}
		for _, g := range p.grants {
			if p.owns(g) {
				p.succeed(g)
			}
		}
		p.check()
		p.pass(second)
	}
}
