package shaper

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
)

// lookScript reads all that a downstream holds, in one call.
var lookScript = redis.NewScript(`
local P, T = KEYS[1], {}
local ids = {}
for i = 2, #ARGV do ids[#ids + 1] = ARGV[i] end
for name in string.gmatch(ARGV[1], '%S+') do
  local ends = {}
  for i, id in ipairs(ids) do ends[i] = P .. 'e:' .. name .. ':' .. id end
  ends = redis.call('MGET', unpack(ends))
  for i = 1, #ids do ends[i] = ends[i] or '' end
  local wait = redis.call('ZRANGE', P .. 'b:' .. name, 0, -1)
  for _, id in ipairs(redis.call('LRANGE', P .. 'w:' .. name, 0, -1)) do wait[#wait + 1] = id end
  T[#T + 1] = { wait, redis.call('ZRANGE', P .. 'z:' .. name, 0, -1, 'WITHSCORES'),
    redis.call('HGETALL', P .. 's:' .. name), redis.call('HKEYS', P .. 'j:' .. name),
    redis.call('ZRANGE', P .. 'x:' .. name, 0, -1, 'WITHSCORES'), redis.call('HGETALL', P .. 't:' .. name), ends,
    redis.call('ZRANGE', P .. 'o:' .. name, 0, -1, 'WITHSCORES') }
end
local log = redis.call('XRANGE', P .. 'log', '-', '+')
for i, e in ipairs(log) do log[i] = e[2][2] end
return { redis.call('HGETALL', P .. 'd'), redis.call('HGETALL', P .. 'pools'),
  redis.call('ZRANGE', P .. 'out', 0, -1, 'WITHSCORES'), redis.call('ZRANGE', P .. 'run', 0, -1, 'WITHSCORES'),
  redis.call('ZRANGE', P .. 'due', 0, -1, 'WITHSCORES'), redis.call('ZRANGE', P .. 'ready', 0, -1, 'WITHSCORES'), T, log }`)

// view is what lookScript saw, or what the model holds.
type view struct {
	ds, pools            map[string]string
	out, run, due, ready map[string]string // name -> score
	wait                 map[string][]string
	later, state         map[string]map[string]string
	dead, hash, ends     map[string]map[string]string
	outs                 map[string]map[string]string
	bodies               map[string][]string
	log                  []string
}

func newView() view {
	return view{wait: map[string][]string{}, bodies: map[string][]string{}, later: map[string]map[string]string{},
		state: map[string]map[string]string{}, dead: map[string]map[string]string{}, hash: map[string]map[string]string{},
		ends: map[string]map[string]string{}, outs: map[string]map[string]string{}}
}

// Fields of the hashes that the model knows of, besides the counters.
var (
	bothFields      = append([]string{"slot", "next", "rem", "r", "seen", "out", "run", "vt", "until"}, counterFields...)
	downstreamKnown = append([]string{"clock", "from", "mercy", "places", "alive"}, bothFields...)
	tenantKnown     = append([]string{"row", "took", "due", "by_time", "busy"}, bothFields...)
)

const (
	stateWords = 9 // of a state line that are compared as they stand
	endWords   = 9 // of the line of an end
)

func list(v any) []string {
	l := []string{}
	for r := replyOf(v); r.more(); {
		l = append(l, r.str())
	}
	return l
}

func pairs(v any) map[string]string {
	m := map[string]string{}
	for r := replyOf(v); r.more(); {
		k := r.str()
		m[k] = r.str()
	}
	return m
}

// scores reads a sorted set.
func scores(v any) map[string]string {
	m := pairs(v)
	for name, score := range m {
		at, _ := strconv.ParseFloat(score, 64) // miniredis may write 1e+06
		m[name] = fmt.Sprint(int64(at))
	}
	return m
}

// known picks the fields that the model knows of; one that is not set is 0.
func known(h map[string]string, fields []string) map[string]string {
	out := map[string]string{}
	for _, f := range fields {
		if v := h[f]; v != "" && v != "0" {
			out[f] = v
		}
	}
	return out
}

func look(w *world, names, ids []string) view {
	args := []any{strings.Join(names, " ")}
	for _, id := range ids {
		args = append(args, id)
	}
	raw, err := lookScript.Run(w.t.Context(), w.rdb, w.q.keys(), args...).Result()
	w.must(err)
	r, v := replyOf(raw), newView()
	v.ds, v.pools, v.out, v.run, v.due, v.ready = pairs(r.next()), pairs(r.next()), scores(r.next()), scores(r.next()), scores(r.next()), scores(r.next())
	tenants := replyOf(r.next())
	for _, name := range names {
		t := replyOf(tenants.next())
		v.wait[name], v.later[name], v.state[name] = list(t.next()), scores(t.next()), pairs(t.next())
		v.bodies[name], v.dead[name], v.hash[name] = list(t.next()), scores(t.next()), pairs(t.next())
		slices.Sort(v.bodies[name])
		v.ends[name] = map[string]string{}
		for i, line := range list(t.next()) {
			if line != "" {
				v.ends[name][ids[i]] = line
			}
		}
		v.outs[name] = scores(t.next())
	}
	v.log = list(r.next())
	return v
}

// known is the part of a view that the model knows of.
func (v view) known() view {
	v.ds = known(v.ds, downstreamKnown)
	all := newView()
	all.ds, all.pools, all.out, all.run, all.due, all.ready, all.log = v.ds, v.pools, v.out, v.run, v.due, v.ready, v.log
	all.wait, all.later, all.dead, all.outs, all.bodies = v.wait, v.later, v.dead, v.outs, v.bodies
	for name := range v.hash {
		all.hash[name] = known(v.hash[name], tenantKnown)
		all.state[name], all.ends[name] = map[string]string{}, map[string]string{}
		for id, line := range v.state[name] {
			all.state[name][id] = stateOf(line)
		}
		for id, line := range v.ends[name] {
			first, _, _ := strings.Cut(line, "\n")
			all.ends[name][id] = strings.Join(strings.Fields(first)[:endWords], " ")
		}
	}
	return all
}

// stateOf is what the model knows of a state line.
func stateOf(line string) string {
	words := strings.Fields(line)
	var job Job
	if err := job.readState(line); err != nil {
		return err.Error()
	}
	return fmt.Sprint(strings.Join(words[:stateWords], " "), " ", job.Throttles, " ", strings.Contains(words[stateWords], ",granted"))
}

// modelled is what Redis should hold, by the model.
func modelled(d *model.Downstream, names []string) view {
	scores := func(b *model.Book) map[string]string {
		m := map[string]string{}
		for _, l := range b.Lines() {
			m[l.Name] = fmt.Sprint(l.At)
		}
		return m
	}
	hash := func(tl buckets.Timeline, counts map[string]int64, more ...any) map[string]string {
		h := map[string]string{}
		for k, n := range counts {
			h[k] = fmt.Sprint(n)
		}
		if !tl.Rate.IsZero() {
			more = append(more, "slot", tl.Slot, "next", tl.Next, "rem", tl.Rem, "seen", tl.Seen, "r", rateField(tl.Rate))
		}
		for i := 0; i < len(more); i += 2 {
			h[more[i].(string)] = fmt.Sprint(more[i+1])
		}
		return h
	}
	v := newView()
	v.pools, v.out, v.run, v.due, v.ready = map[string]string{}, scores(d.Out), scores(d.Running), scores(d.Due), scores(d.Ready)
	v.log = append([]string{}, d.Log...)
	running, all := map[string]int{}, int64(0)
	for _, name := range names {
		t := d.Tenant(name)
		v.wait[name], v.later[name], v.outs[name] = append([]string{}, t.Waiting()...), scores(t.Later), scores(t.Outs)
		dead, state, ends, bodies := map[string]string{}, map[string]string{}, map[string]string{}, []string{}
		for id, j := range t.Jobs {
			of := fmt.Sprint(j.Starts, " ", j.Forgiven, " ", j.Crashes, " ", j.Token, " ", j.Slot, " ", j.Since)
			if j.Ended() {
				ends[id] = fmt.Sprint(j.State, " ", of, " ", j.At, " ", j.Next)
				continue
			}
			bodies = append(bodies, id)
			switch j.State {
			case model.Dead:
				dead[id] = fmt.Sprint(j.At)
			case model.Running, model.Cancelling:
				running[model.PoolOf(j.Token)]++
			}
			if j.State != model.Unseen && j.State != model.Delayed {
				state[id] = fmt.Sprint(j.State, " ", j.Releases, " ", of, " ", j.Next, " ", j.Throttles, " ", j.Granted)
			}
		}
		slices.Sort(bodies)
		v.dead[name], v.state[name], v.ends[name], v.bodies[name] = dead, state, ends, bodies
		took, busy := "", 0
		if t.Took >= 0 {
			took = fmt.Sprint(t.Took)
		}
		if t.Busy {
			busy = 1
		}
		v.hash[name] = known(hash(t.Timeline, t.Counts, "row", t.ThrottledRow, "took", took, "due", t.Turn, "by_time", t.ByTime, "busy", busy,
			"out", t.OutN, "run", t.RunN, "vt", t.VirtualTime, "until", t.Until), tenantKnown)
		all += t.RunN
	}
	v.ds = known(hash(d.Timeline, d.Counts, "clock", d.LastRelease, "from", d.From, "mercy", d.Mercy, "places", d.Places,
		"alive", d.Alive, "out", d.Out.Len(), "run", all, "vt", d.VirtualTime, "until", d.Until), downstreamKnown)
	for name, p := range d.Pools {
		v.pools[name] = fmt.Sprint(p.Places, " ", p.Deadline)
	}
	for name, n := range running {
		v.pools[name+":n"] = fmt.Sprint(n)
	}
	return v
}

// check compares all that the model knows with what Redis holds, and what both hold with what the book says.
func (p *player) check() {
	p.t.Helper()
	got, want := p.look().known(), modelled(p.model(), p.names)
	if !reflect.DeepEqual(got, want) {
		g, w := reflect.ValueOf(got), reflect.ValueOf(want)
		for i := range g.NumField() {
			if field, want := fmt.Sprint(g.Field(i)), fmt.Sprint(w.Field(i)); field != want {
				p.t.Errorf("%s:\n     %s\nwant %s", g.Type().Field(i).Name, field, want)
			}
		}
	}
	p.byTheBook()
	for _, name := range p.names {
		if err := p.filed(p.m.Tenants[name]); err != nil {
			p.t.Error(err)
		}
	}
}

// byTheBook holds each slot that was granted since it looked last to the promise: see exact.
func (p *player) byTheBook() {
	p.t.Helper()
	for ; p.booked < len(p.m.Log); p.booked++ {
		f := strings.Fields(p.m.Log[p.booked])
		if f[0] != "g" {
			continue
		}
		slot, tenant := atoi(f[4]), p.exactly(f[1])
		now, rate, common := slot-atoi(f[5]), readRate(f[6]), readRate(f[7])
		want := tenant.earliest(rate, now, p.epoch, mGrace)
		if !common.IsZero() {
			want = max(want, p.common.earliest(common, now, p.epoch, mGrace))
			p.common.grant(common, slot, now, p.epoch)
		}
		tenant.grant(rate, slot, now, p.epoch)
		if slot != want {
			p.t.Errorf("slot of %s of %s: %d, and by the book it is %d", f[2], f[1], slot-t0, want-t0)
		}
	}
}

func (p *player) exactly(tenant string) *exact {
	if p.exacts[tenant] == nil {
		p.exacts[tenant] = &exact{}
	}
	return p.exacts[tenant]
}

// likely is when the next ticket of a tenant would start by its own timeline, and by the common one too, by the book.
func (p *player) likely(t *model.Tenant) (own, both int64) {
	own = p.exactly(t.Name).likely(p.m.Limits(t).Rate, t.OutN, p.now, p.epoch, mGrace)
	if r := p.m.Policy.Rate; !r.IsZero() {
		return own, max(own, p.common.likely(r, int64(p.m.Out.Len()), p.now, p.epoch, mGrace))
	}
	return own, own
}

// full tells whether a tenant has all in flight that it may.
func (p *player) full(t *model.Tenant) bool { return t.OutN+t.RunN >= p.m.Limits(t).MaxInFlight }

// filed checks that a tenant that has something to release is in the books for it, and not too late.
func (p *player) filed(t *model.Tenant) error {
	at, due := p.m.Due.At(t.Name)
	if p.full(t) && due {
		return fmt.Errorf("%s is filed under %d and has all in flight that it may: a scheduler would look again and again", t.Name, at)
	}
	for _, l := range t.Outs.Lines() {
		if j := t.Jobs[l.Name]; j.At > p.left[t.Name+" "+j.ID]+ticketTTL.Microseconds() {
			return fmt.Errorf("%s may be out for longer than a ticket lives", j.ID)
		}
	}
	if t.Level() == 0 || p.full(t) || t.Until >= forever {
		return nil
	}
	if _, ready := p.m.Ready.At(t.Name); ready {
		return nil
	}
	if !due {
		return fmt.Errorf("%s is stranded: %d wait, %d in flight, and it is neither due nor ready", t.Name, t.Level(), t.OutN+t.RunN)
	}
	latest, _ := p.likely(t)
	if len(t.Waiting()) == 0 {
		latest = max(latest, t.Later.Lines()[0].At+mLead)
	}
	if latest = max(latest, t.Until+mLead); at > latest {
		return fmt.Errorf("%s is filed under %d, %d µs after its head may leave", t.Name, at, at-latest)
	}
	return nil
}

func poolOf(tok string) string { return model.PoolOf(tok) }
