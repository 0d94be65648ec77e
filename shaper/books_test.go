package shaper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/model"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// losing is the preamble of scripts that lose one write, the n-th after n was put under the key
// "lose": the script goes on as if the write had been made. The write is put under "lost".
const losing = `
local raw = redis.call
local instead = {
  HSET = function() return 1 end, HSETNX = function(k, f) return 1 - raw('HEXISTS', k, f) end,
  HINCRBY = function(k, f, n) return (tonumber(raw('HGET', k, f)) or 0) + n end, HDEL = function(k, f) return raw('HEXISTS', k, f) end,
  ZADD = function() return 1 end, ZREM = function(k, m) return raw('ZSCORE', k, m) and 1 or 0 end,
  ZPOPMIN = function(k) return raw('ZRANGE', k, 0, 0, 'WITHSCORES') end,
  LPOP = function(k) return raw('LINDEX', k, 0) end, RPUSH = function() return 1 end, LREM = function() return 1 end,
  SET = function() return 'OK' end, PERSIST = function() return 1 end, PEXPIRE = function() return 1 end,
}
local function call(cmd, ...)
  if instead[cmd] and raw('DECR', PREFIX .. 'lose') == 0 then
    raw('SET', PREFIX .. 'lost', table.concat({ cmd, ... }, ' '))
    return instead[cmd](...)
  end
  return raw(cmd, ...)
end`

// loser makes the scripts of a client lose writes, all but those that mend.
type loser struct{ variant map[string]string } // SHA of a script → SHA of its variant that loses

// source keeps the text of a script that is loaded with it.
type source struct {
	redis.Scripter
	hash, text string
}

func (s *source) ScriptLoad(_ context.Context, text string) *redis.StringCmd {
	s.text = text
	return redis.NewStringResult(s.hash, nil)
}

func newLoser(t *testing.T, rdb redis.UniversalClient) {
	l := &loser{map[string]string{}}
	for name, s := range queue.Scripts {
		if s == queue.CompareScript || s == queue.MendScript {
			continue
		}
		sound := source{hash: s.Hash()}
		s.Load(t.Context(), &sound)
		broken := strings.Replace(sound.text, "local function call(...)\n  commands = commands + 1\n  return redis.call(...)\nend", losing, 1)
		if broken == sound.text {
			t.Fatalf("%s does not begin as it did", name)
		}
		sha, err := rdb.ScriptLoad(t.Context(), broken).Result()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		l.variant[s.Hash()] = sha
	}
	rdb.AddHook(l)
}

func (l *loser) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *loser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[0] == "evalsha" {
			if sha, ok := l.variant[args[1].(string)]; ok {
				args[1] = sha
			}
		}
		return next(ctx, cmd)
	}
}

func (l *loser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// life is a queue with a job for each way through it. What its workers do depends on the ids, so it
// is the same each time.
type life struct {
	*world
	live      map[string]*queue.Grant // by id, of workers that beat
	until     map[string]int64        // when such a worker is done
	silent    map[string]int64        // until when a worker that vanished keeps its job
	notBefore map[string]int64
	starts    map[string]int
	ended     map[string]string
	wrong     []string
	gaveBack  bool
}

var lives = []string{"back", "ok1", "fails", "live", "hand", "crash", "called-off", "dies", "gives", "long", "ok2", "ok3", "taken-back", "ok4", "ok5", "delayed"}

const crashLease = 15 * second

// copyScript copies all of a downstream to a new one.
var copyScript = redis.NewScript(`
for _, key in ipairs(redis.call('KEYS', KEYS[1] .. '*')) do redis.call('COPY', key, KEYS[2] .. string.sub(key, #KEYS[1] + 1)) end`)

// again returns a copy of this life, which goes on by itself.
func (l *life) again(t *testing.T) *life {
	w, c := emptyWorld(t, l.rdb), *l
	w.now, w.places = l.now, maps.Clone(l.places)
	if err := copyScript.Run(t.Context(), l.rdb, []string{l.q.Prefix, w.q.Prefix}).Err(); !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	c.world, c.wrong = w, slices.Clone(l.wrong)
	c.live, c.until, c.silent = maps.Clone(l.live), maps.Clone(l.until), maps.Clone(l.silent)
	c.notBefore, c.starts, c.ended = maps.Clone(l.notBefore), maps.Clone(l.starts), maps.Clone(l.ended)
	return &c
}

// forget removes from Redis what it holds of this life.
func (l *life) forget() {
	l.t.Helper()
	keys, err := l.rdb.Keys(l.t.Context(), l.q.Prefix+"*").Result()
	l.must(err)
	l.must(l.rdb.Del(l.t.Context(), keys...).Err())
}

func newLife(t *testing.T, rdb redis.UniversalClient) *life {
	l := &life{world: newWorld(t, rdb), live: map[string]*queue.Grant{}, until: map[string]int64{}, silent: map[string]int64{},
		notBefore: map[string]int64{}, starts: map[string]int{}, ended: map[string]string{}}
	l.setDownstream(DownstreamPolicy{DepartureLog: 10_000})
	l.set("a", Policy{Rate: rate(10, time.Second), MaxInFlight: 5, MaxAttempts: 3, Backoff: Backoff{5 * time.Second, time.Minute}})
	l.pool("p", 6)
	return l
}

func (l *life) offerOne(id string) {
	s := Spec{Tenant: "a", ID: id}
	if id == "delayed" {
		s.Delay = 30 * time.Second
		l.notBefore[id] = l.now + 30*second
	}
	if r := l.offer(s); r.Status != Accepted {
		l.say("offer of %s: %+v", id, r)
	}
}

func (l *life) say(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// step lets some time pass, and lets workers do what there is to do.
func (l *life) step(us int64) {
	l.pass(us)
	ctx := l.t.Context()
	own := make([]*queue.Grant, 0, len(l.live))
	for _, id := range slices.Sorted(maps.Keys(l.live)) {
		own = append(own, l.live[id])
	}
	held := make([]queue.Held, len(own))
	for i, g := range own {
		held[i] = queue.Held{Grant: g, Begun: l.now >= g.Slot.UnixMicro()}
	}
	standing, err := l.gate.Beat(ctx, "p", 6, time.Hour, held)
	l.must(err)
	for i, s := range standing {
		if s == queue.Lost {
			delete(l.live, own[i].ID) // its context ends
		}
	}
	for _, g := range own {
		if l.live[g.ID] != nil && l.now >= l.until[g.ID] {
			delete(l.live, g.ID)
			end := queue.Finish{Ending: queue.EndOK, Began: queue.BeganAfter(0)}
			if g.ID == "called-off" {
				end.Ending = queue.EndError
			}
			l.end(g, end)
		}
	}
	tickets, _, _ := l.release(3)
	for _, k := range tickets {
		if k.ID == "gives" && !l.gaveBack {
			l.gaveBack = true
			l.must(l.gate.GiveBack(ctx, k))
			continue
		}
		g, _, err := l.gate.Enter(ctx, k, queue.NewToken("p"))
		if err != nil && g == nil {
			l.say("gate of %v: %v", k, err)
		}
		l.begin(g)
	}
}

func (l *life) begin(g *queue.Grant) {
	if g == nil {
		return
	}
	id := g.ID
	if how := l.ended[id]; how != "" {
		l.say("%s starts after its end (%s)", id, how)
	}
	if l.live[id] != nil {
		l.say("%s starts while it runs", id)
	}
	if until := l.silent[id]; l.now < until {
		l.say("%s starts %d µs before its lease is over", id, until-l.now)
	}
	if early := l.notBefore[id] - g.Slot.UnixMicro(); early > 0 {
		l.say("%s starts %d µs early", id, early)
	}
	l.starts[id]++
	first := l.starts[id] == 1
	switch {
	case id == "crash" && first:
		l.silent[id] = max(l.now, g.Slot.UnixMicro()) + crashLease
	case id == "live" || id == "long" || id == "called-off":
		l.live[id], l.until[id] = g, l.now+20*second
		if id == "called-off" {
			l.cancel(id)
		}
	case id == "hand" && first: // until it is handed back
		l.live[id], l.until[id] = g, l.now+20*second
	case id == "fails" && first:
		l.notBefore[id] = l.now + 5*second
		l.end(g, queue.Finish{Ending: queue.EndError, Delay: 5 * time.Second, Text: "no"})
	case id == "dies":
		l.end(g, queue.Finish{Ending: queue.EndDead, Text: "never"})
	case id == "back" && first:
		l.end(g, queue.Finish{Ending: queue.EndBack})
	default:
		l.end(g, queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p"), Began: queue.BeganAfter(0)})
	}
}

func (l *life) end(g *queue.Grant, f queue.Finish) {
	out, err := l.gate.Finish(l.t.Context(), g, f)
	if err != nil {
		l.say("finish of %s: %v", g.ID, err)
	}
	if out.Became == "done" || out.Became == "dead" || out.Became == "cancelled" {
		l.ended[g.ID] = out.Became
	}
	l.begin(out.Next)
}

func (l *life) cancel(id string) {
	if _, err := l.client.Cancel(l.t.Context(), "a", id); err != nil && !errors.Is(err, ErrNotFound) {
		l.say("cancel of %s: %v", id, err)
	}
}

// beginning is how lives begin, until each job is in a place of its own.
func beginning() (steps []func(l *life)) {
	for _, id := range lives {
		steps = append(steps, func(l *life) { l.offerOne(id) })
	}
	for range 9 {
		steps = append(steps, func(l *life) { l.step(150 * milli) })
	}
	return append(steps,
		func(l *life) { l.cancel("taken-back") },
		func(l *life) { l.step(150 * milli) },
		func(l *life) {
			l.pass(150 * milli)
			l.release(1) // one is out, and its ticket gets nowhere
		},
		func(l *life) {
			if g := l.live["hand"]; g != nil {
				delete(l.live, "hand")
				l.end(g, queue.Finish{Ending: queue.EndBack})
			}
		})
}

// idle reports whether Redis holds nothing more to do.
func (l *life) idle() bool {
	n, err := l.rdb.Exists(l.t.Context(), l.q.OutKey(), l.q.RunKey(), l.q.DueKey(), l.q.ReadyKey()).Result()
	l.must(err)
	return n == 0
}

// toTheEnd lets all jobs come to an end, and checks that they did. The books are compared now and
// then, as a scheduler does. Jobs that are named in lost may be gone.
func (l *life) toTheEnd(lost string) {
	l.t.Helper()
	keeper := &bookkeeper{q: l.q, mend: true}
	if strings.Contains(lost, "HSET s:a dies x") {
		keeper.all = true // it is among the dead, so no size shows it
	}
	for i, quiet := 0, 0; i < 150 && quiet < 2; i++ {
		l.step(3 * second)
		if i%4 == 3 {
			faults, err := keeper.pass(l.t.Context(), time.UnixMicro(l.now-60*second))
			l.must(err)
			quiet++
			if len(faults)+len(l.live) > 0 || !l.idle() {
				quiet = 0
			}
		}
	}
	if faults, err := l.admin.Books(l.t.Context(), true); err != nil || len(faults) > 0 {
		l.say("still wrong: %v (%v)", faults, err)
	}
	v := look(l.world, "a")
	a, ds, hash := v.Tenants["a"], v.raw["downstream"], v.raw["tenant a"]
	for _, id := range lives {
		switch line, ended := v.raw["ends a"][id]; {
		case ended:
			if end, err := find(l.t.Context(), l.q, "a", id); err != nil || !end.State.Ended() {
				l.say("the end of %s: %q, %v", id, line, err)
			}
		case a.Bodies[id] && strings.HasPrefix(a.States[id], "x "):
		case a.Bodies[id] || a.States[id] != "" || !strings.Contains(lost, id):
			l.say("%s is %q in the end", id, a.States[id])
		}
	}
	if len(v.Out)+len(v.Run)+len(v.Ready)+len(v.Due)+len(a.Back)+len(a.Fresh)+len(a.Later)+len(a.Outs) > 0 {
		l.say("not empty: %v", v)
	}
	for _, n := range []string{ds["out"], ds["run"], hash["out"], hash["run"], v.Pools["p:n"], hash["busy"]} {
		if atoi(n) != 0 {
			l.say("counts are left: %v %v %v", ds, hash, v.Pools)
		}
	}
	if len(a.Bodies) != len(a.Dead) || len(a.States) != len(a.Dead) {
		l.say("bodies %v and states %v of %v", a.Bodies, a.States, a.Dead)
	}
}

// Whichever single write of a queue's life is lost, all its jobs come to an end, none runs twice at
// once or too early, and nothing keeps a place.
func TestAnyWriteMayBeLost(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	newLoser(t, rdb)
	steps := beginning()
	for range 15 {
		steps = append(steps, func(l *life) { l.step(3 * second) })
	}
	// A life that loses nothing is kept as it is before each step, so that the others need not
	// start at the beginning.
	const never = 1_000_000
	kept, made, l := []*life{}, []int{}, newLife(t, rdb) // made is how many writes were made before the step
	l.must(rdb.Set(t.Context(), l.q.Prefix+"lose", never, 0).Err())
	writes := func() int {
		left, err := rdb.Get(t.Context(), l.q.Prefix+"lose").Int()
		l.must(err)
		return never - left
	}
	for _, step := range steps {
		kept, made = append(kept, l.again(t)), append(made, writes())
		step(l)
	}
	all, every := writes(), 1
	if testing.Short() {
		every = 29
	}
	t.Logf("%d writes", all)
	together(t, func(t *testing.T, player int) {
		for n := 1 + player*every; n <= all; n += players * every {
			first, _ := slices.BinarySearch(made, n) // the first step before which it was made, or none
			l := kept[first-1].again(t)
			l.must(rdb.Set(t.Context(), l.q.Prefix+"lose", n-made[first-1], 0).Err())
			for _, step := range steps[first-1:] {
				step(l)
			}
			lost, err := rdb.Get(t.Context(), l.q.Prefix+"lost").Result()
			l.must(err)
			lost = strings.ReplaceAll(lost, l.q.Prefix, "")
			l.toTheEnd(lost)
			if len(l.wrong) > 0 {
				t.Errorf("without write %d, %s:\n\t%s", n, lost, strings.Join(l.wrong, "\n\t"))
			}
			l.forget()
		}
	})
}

// The same holds if somebody takes away any single entry, count, state or body of a queue with jobs
// in every state, or puts it where it does not belong.
func TestBooksThatSomebodySpoilt(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	type spoil struct {
		name string
		do   func(l *life) error
	}
	var spoils []spoil
	ctx := t.Context()
	key := func(l *life, k string) string { return l.q.Prefix + k }
	add := func(name string, do func(l *life) error) { spoils = append(spoils, spoil{name, do}) }
	zadd := func(k, member string, score func(l *life) int64) {
		add(fmt.Sprint("ZADD ", k, " ", member), func(l *life) error {
			return rdb.ZAdd(ctx, key(l, k), redis.Z{Score: float64(score(l)), Member: member}).Err()
		})
	}
	now := func(l *life) int64 { return l.now }

	sample := newLife(t, rdb) // as each of them will be
	for _, step := range beginning() {
		step(sample)
	}
	v := look(sample.world, "a")
	a, states := v.Tenants["a"], v.raw["states a"]
	members := map[string][]string{"b:a": names(a.Back), "z:a": names(a.Later), "o:a": names(a.Outs), "x:a": names(a.Dead), "out": names(v.Out),
		"run": names(v.Run), "due": names(v.Due), "tenants": {"a"}}
	for _, k := range slices.Sorted(maps.Keys(members)) {
		if len(members[k]) == 0 {
			t.Errorf("nothing is in %s, so nothing can be lost from it", k)
		}
		for _, m := range members[k] {
			add("ZREM "+k+" "+m, func(l *life) error { return rdb.ZRem(ctx, key(l, k), m).Err() })
		}
	}
	for _, id := range a.Fresh {
		add("LREM w:a "+id, func(l *life) error { return rdb.LRem(ctx, key(l, "w:a"), 0, id).Err() })
	}
	for _, id := range slices.Sorted(maps.Keys(states)) {
		add("HDEL s:a "+id, func(l *life) error { return rdb.HDel(ctx, key(l, "s:a"), id).Err() })
	}
	for _, id := range slices.Sorted(maps.Keys(a.Bodies)) {
		add("HDEL j:a "+id, func(l *life) error { return rdb.HDel(ctx, key(l, "j:a"), id).Err() })
		add("RPUSH w:a "+id, func(l *life) error { return rdb.RPush(ctx, key(l, "w:a"), id).Err() })
		add("LPUSH w:a "+id, func(l *life) error { return rdb.LPush(ctx, key(l, "w:a"), id).Err() })
		if states[id] != "" {
			for _, k := range []string{"b:a", "z:a", "o:a", "x:a", "out", "run"} {
				member := id
				if k == "out" || k == "run" {
					member = "a " + id
				}
				if !slices.Contains(members[k], member) {
					zadd(k, member, now)
				}
			}
		}
	}
	for _, k := range []string{"b:a", "z:a", "o:a", "x:a"} {
		zadd(k, "nobody", now)
	}
	zadd("out", "a nobody", now)
	zadd("run", "a nobody", now)
	add("RPUSH w:a nobody", func(l *life) error { return rdb.RPush(ctx, key(l, "w:a"), "nobody").Err() })
	add("HSET s:a nobody", func(l *life) error { return rdb.HSet(ctx, key(l, "s:a"), "nobody", states["live"]).Err() })
	zadd("due", "a", func(l *life) int64 { return l.now + 3600*second })
	zadd("tenants", "a", now)
	zadd("tenants", "idle", func(*life) int64 { return queue.Forever })
	for _, f := range []struct{ key, field string }{{"d", "out"}, {"d", "run"}, {"t:a", "out"}, {"t:a", "run"}, {"pools", "p:n"}} {
		for _, n := range []int{0, 1, 7, 1000} {
			add(fmt.Sprint("HSET ", f.key, " ", f.field, " ", n), func(l *life) error { return rdb.HSet(ctx, key(l, f.key), f.field, n).Err() })
		}
		add("HDEL "+f.key+" "+f.field, func(l *life) error { return rdb.HDel(ctx, key(l, f.key), f.field).Err() })
	}
	add("HDEL t:a busy", func(l *life) error { return rdb.HDel(ctx, key(l, "t:a"), "busy").Err() })
	add("PEXPIRE t:a", func(l *life) error { return rdb.PExpire(ctx, key(l, "t:a"), time.Hour).Err() })

	t.Logf("%d ways: %v", len(spoils), v)
	every := 1
	if testing.Short() {
		every = 5
	}
	together(t, func(t *testing.T, player int) {
		for i := player * every; i < len(spoils); i += players * every {
			s, l := spoils[i], sample.again(t)
			l.must(s.do(l))
			l.toTheEnd(s.name)
			if len(l.wrong) > 0 {
				t.Errorf("after %s:\n\t%s", s.name, strings.Join(l.wrong, "\n\t"))
			}
			l.forget()
		}
	})
}

// names returns the members of a book, in its order.
func names(l []model.Line) (out []string) {
	for _, line := range l {
		out = append(out, line.Name)
	}
	return out
}
