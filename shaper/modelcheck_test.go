package shaper

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/setting"
)

// lookScript reads all that a downstream holds, in one call.
var lookScript = redis.NewScript(`
local P, T = KEYS[1], {}
for name in string.gmatch(ARGV[1], '%S+') do
  T[#T + 1] = { redis.call('ZRANGE', P .. 'b:' .. name, 0, -1, 'WITHSCORES'), redis.call('LRANGE', P .. 'w:' .. name, 0, -1),
    redis.call('ZRANGE', P .. 'z:' .. name, 0, -1, 'WITHSCORES'), redis.call('ZRANGE', P .. 'o:' .. name, 0, -1, 'WITHSCORES'),
    redis.call('ZRANGE', P .. 'x:' .. name, 0, -1, 'WITHSCORES'), redis.call('HGETALL', P .. 's:' .. name),
    redis.call('HKEYS', P .. 'j:' .. name), redis.call('HGETALL', P .. 't:' .. name),
    redis.call('LRANGE', P .. 'k:' .. name .. ':0', 0, -1) }
end
local log = redis.call('XRANGE', P .. 'log', '-', '+')
for i, e in ipairs(log) do log[i] = e[2][2] end
return { redis.call('HGETALL', P .. 'd'), redis.call('HGETALL', P .. 'pools'),
  redis.call('ZRANGE', P .. 'out', 0, -1, 'WITHSCORES'), redis.call('ZRANGE', P .. 'run', 0, -1, 'WITHSCORES'),
  redis.call('ZRANGE', P .. 'apart', 0, -1, 'WITHSCORES'), redis.call('ZRANGE', P .. 'due', 0, -1, 'WITHSCORES'), redis.call('ZRANGE', P .. 'ready', 0, -1, 'WITHSCORES'), T, log,
  redis.call('HGETALL', P .. 'gave') }`)

// view is what lookScript saw, or what the model holds.
type view struct {
	Downstream      map[string]string // the fields of its hash that the model knows of
	Pools           map[string]string
	Out, Run, Apart []model.Line
	Due, Ready      []model.Line
	Tenants         map[string]tenantView
	Log             []string
	raw             map[string]map[string]string // what it was read from, with what the model does not know
}

type tenantView struct {
	Back, Later, Outs, Dead []model.Line
	Fresh                   []string
	States                  map[string]string // as they are, except for texts
	Ends                    []string          // the same, in order
	Bodies                  map[string]bool
	Hash                    map[string]string
}

// Fields of the hashes that the model knows of, besides the counters.
var (
	bothFields       = append([]string{"slot", "next", "rem", "r", "seen", "out", "run", "vt", "until"}, counterFields...)
	downstreamKnown  = append([]string{"clock", "spared_from", "spared_until", "places", "alive", "far", "reach", "calm", "sent", "pace", "turn", "turn_until"}, bothFields...)
	tenantKnown      = append([]string{"row", "took", "due", "by_time", "busy"}, bothFields...)
	noLines, noWords = []model.Line{}, []string{}
)

const (
	stateWords = 9 // of a state line that are compared as they are
	endWords   = 7 // of an end
	tokenEnd   = 6 // letters of a token that an end keeps
)

func list(v any) []string {
	l := noWords
	for r := queue.ReplyOf(v); r.More(); {
		l = append(l, r.Str())
	}
	return l
}

func pairs(v any) map[string]string {
	m := map[string]string{}
	for r := queue.ReplyOf(v); r.More(); {
		k := r.Str()
		m[k] = r.Str()
	}
	return m
}

// lines reads a sorted set.
func lines(v any) []model.Line {
	l := noLines
	for r := queue.ReplyOf(v); r.More(); {
		name := r.Str()
		at, _ := strconv.ParseFloat(r.Str(), 64)
		l = append(l, model.Line{At: int64(at), Name: name})
	}
	return l
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

func look(w *world, names ...string) view { return viewOf(read(w, names), names) }

// read returns the reply of lookScript.
func read(w *world, names []string) any {
	reply, err := lookScript.Run(w.t.Context(), w.rdb, w.q.Keys(), strings.Join(names, " ")).Result()
	w.must(err)
	return reply
}

// viewOf reads the reply of lookScript.
func viewOf(reply any, names []string) view {
	r := queue.ReplyOf(reply)
	v := view{Tenants: map[string]tenantView{}, raw: map[string]map[string]string{}}
	keep := func(what string, m map[string]string) map[string]string { v.raw[what] = m; return m }
	v.Downstream = known(keep("downstream", pairs(r.Next())), downstreamKnown)
	v.Pools, v.Out, v.Run, v.Apart = pairs(r.Next()), lines(r.Next()), lines(r.Next()), lines(r.Next())
	v.Due, v.Ready = lines(r.Next()), lines(r.Next())
	tenants := queue.ReplyOf(r.Next())
	for _, name := range names {
		r := queue.ReplyOf(tenants.Next())
		t := tenantView{Back: lines(r.Next()), Fresh: list(r.Next()), Later: lines(r.Next()), Outs: lines(r.Next()),
			Dead: lines(r.Next()), States: map[string]string{}, Ends: noWords, Bodies: map[string]bool{}}
		for id, line := range keep("states "+name, pairs(r.Next())) {
			t.States[id] = stateOf(line)
		}
		for _, id := range list(r.Next()) {
			t.Bodies[id] = true
		}
		t.Hash = known(keep("tenant "+name, pairs(r.Next())), tenantKnown)
		ends := keep("ends "+name, map[string]string{})
		all := list(r.Next())
		for i, line := range all {
			if i%2 == 1 {
				ends[all[i-1]] = line
				t.Ends = append(t.Ends, all[i-1]+" "+strings.Join(strings.Fields(line)[:endWords], " "))
			}
		}
		v.Tenants[name] = t
	}
	v.Log = list(r.Next())
	keep("gave", pairs(r.Next()))
	return v
}

// stateOf is what the model knows of a state line.
func stateOf(line string) string {
	words := strings.Fields(line)
	var job Job
	if err := job.readState(line); err != nil {
		return err.Error()
	}
	return fmt.Sprint(strings.Join(words[:stateWords], " "), " ", job.Throttles, " ", job.Suspect, " ", job.Blamed, " ", strings.Contains(words[stateWords], ",granted"))
}

// modelled is what Redis should hold, by the model.
func modelled(d *model.Downstream, names []string) view {
	book := func(b *model.Book) []model.Line { return append(noLines, b.Lines()...) }
	both := func(tl buckets.Timeline, counts map[string]int64, more ...any) map[string]string {
		h := map[string]string{}
		for k, n := range counts {
			h[k] = fmt.Sprint(n)
		}
		if !tl.Rate.IsZero() {
			more = append(more, "slot", tl.Slot, "next", tl.Next, "rem", tl.Rem, "r", setting.KeepRate(tl.Rate))
		}
		if tl.Seen > 0 {
			more = append(more, "seen", tl.Seen)
		}
		for i := 0; i < len(more); i += 2 {
			h[more[i].(string)] = fmt.Sprint(more[i+1])
		}
		return h
	}
	v := view{Pools: map[string]string{}, Out: book(d.Out), Run: book(d.Running), Apart: book(d.Apart), Due: book(d.Due), Ready: book(d.Ready),
		Tenants: map[string]tenantView{}, Log: append(noWords, d.Log...)}
	running, all := map[string]int{}, int64(0)
	for _, name := range names {
		m := d.Tenant(name)
		t := tenantView{Back: book(m.Back), Later: book(m.Later), Outs: book(m.Outs), Dead: noLines, Fresh: append(noWords, m.Fresh...),
			States: map[string]string{}, Ends: endsOf(m), Bodies: map[string]bool{}}
		for id, j := range m.Jobs {
			of := fmt.Sprint(j.Starts, " ", j.Forgiven, " ", j.Crashes, " ", j.Token, " ", j.Slot, " ", j.Since)
			if j.Ended() {
				continue
			}
			t.Bodies[id] = true
			switch j.State {
			case model.Dead:
				t.Dead = append(t.Dead, model.Line{At: j.At, Name: id})
			case model.Running, model.Cancelling:
				running[model.PoolOf(j.Token)]++
			}
			if j.State != model.Unseen && j.State != model.Delayed {
				t.States[id] = fmt.Sprint(j.State, " ", j.Releases, " ", of, " ", j.Next, " ", j.Throttles, " ", j.Suspect > 0, " ", j.Blamed, " ", j.Granted)
			}
		}
		slices.SortFunc(t.Dead, func(a, b model.Line) int { return strings.Compare(fmt.Sprint(a.At, a.Name), fmt.Sprint(b.At, b.Name)) })
		took, busy := "", 0
		if m.Took >= 0 {
			took = fmt.Sprint(m.Took)
		}
		if m.Busy {
			busy = 1
		}
		t.Hash = known(both(m.Timeline, m.Counts, "row", m.ThrottledRow, "took", took, "due", m.Turn, "by_time", m.ByTime, "busy", busy,
			"out", m.OutN, "run", m.RunN, "vt", m.VirtualTime, "until", m.Until), tenantKnown)
		v.Tenants[name] = t
		all += m.RunN
	}
	v.Downstream = known(both(d.Timeline, d.Counts, "clock", d.LastRelease, "spared_from", d.SparedFrom, "spared_until", d.SparedUntil, "places", d.Places,
		"alive", d.Alive, "far", d.Far.Microseconds(), "reach", d.Reach.Microseconds(), "calm", d.Calm, "sent", d.Sent, "pace", d.Pace, "turn", d.Turned, "turn_until", d.TurnUntil, "out", d.Out.Len(), "run", all, "vt", d.VirtualTime, "until", d.Until), downstreamKnown)
	for name, p := range d.Pools {
		v.Pools[name] = fmt.Sprint(p.Places, " ", p.Deadline)
		if p.Trip > 0 {
			v.Pools[name+":d"] = fmt.Sprint(p.Trip.Microseconds())
		}
	}
	for name, n := range running {
		v.Pools[name+":n"] = fmt.Sprint(n)
		if d.Fell[name] {
			v.Pools[name+":x"] = "1"
		}
	}
	return v
}

// endsOf is what Redis keeps of the jobs of a tenant that ended.
func endsOf(t *model.Tenant) []string {
	l := noWords
	for _, j := range t.Ends {
		starts, ran := fmt.Sprint(j.Starts), "-"
		if j.Forgiven+j.Crashes > 0 {
			starts += fmt.Sprintf(",%d,%d", j.Forgiven, j.Crashes)
		}
		if j.Slot > 0 {
			ran = fmt.Sprint(j.At - j.Slot)
		}
		how := map[model.State]string{model.Dropped: "o"}[j.State]
		l = append(l, fmt.Sprint(j.ID, " ", cmp.Or(how, string(j.State[0])), " ", (j.Over-j.At)/second, " ", starts, " ",
			j.Token[max(0, len(j.Token)-tokenEnd):], " ", j.At, " ", j.At-j.Since, " ", ran))
	}
	return l
}

// checkAfter checks after a step. What Redis holds is compared if it was read anyway, and otherwise
// now and then: a difference stays, or shows in an answer, and if the sequence is played again, the
// step at which it began is found.
func (p *player) checkAfter(loud bool) {
	p.t.Helper()
	if p.r.IntN(3) == 0 || p.reply != nil || loud {
		p.check()
	} else {
		p.sound()
	}
}

// check compares all that the model knows with what Redis holds, and what both hold with what the
// book says.
func (p *player) check() {
	p.t.Helper()
	got, want := viewOf(p.read(), p.names), modelled(p.model(), p.names)
	for token, job := range got.raw["gave"] {
		if tenant, id, _ := strings.Cut(job, "/"); !p.m.Job(tenant, id).Owned(token) {
			p.t.Errorf("%s is kept as given to %s, which does not own it", job, token)
		}
	}
	got.raw = nil
	if !reflect.DeepEqual(got, want) {
		p.differ("", reflect.ValueOf(got), reflect.ValueOf(want))
	}
	p.sound()
}

// sound holds the model to the book; and Redis to its own books, now and then.
func (p *player) sound() {
	p.t.Helper()
	p.byTheBook()
	if p.m.Counts["evicted"] > 0 {
		p.seen("end evicted")
	}
	for _, name := range p.names {
		if err := p.filed(p.m.Tenants[name]); err != nil {
			p.t.Error(err)
		}
	}
	if p.r.IntN(30) == 0 {
		if faults, err := p.admin.Books(p.t.Context(), false); err != nil || len(faults) > 0 {
			p.t.Errorf("the books are right, and found to be wrong: %v (%v)", faults, err)
		}
	}
}

// differ reports where two views differ.
func (p *player) differ(where string, got, want reflect.Value) {
	p.t.Helper()
	if reflect.DeepEqual(got.Interface(), want.Interface()) {
		return
	}
	switch {
	case got.Kind() == reflect.Struct && got.Type() != reflect.TypeFor[model.Line]():
		for i := range got.NumField() {
			if f := got.Type().Field(i); f.IsExported() {
				p.differ(where+" "+f.Name, got.Field(i), want.Field(i))
			}
		}
	case got.Kind() == reflect.Map && got.Type().Elem().Kind() == reflect.Struct:
		for _, k := range got.MapKeys() {
			p.differ(where+" "+k.String(), got.MapIndex(k), want.MapIndex(k))
		}
	default:
		p.t.Errorf("%s:\n     %v\nwant %v", strings.TrimSpace(where), got, want)
	}
}

// byTheBook holds each slot that was granted since its last look to the promise, see exact.
func (p *player) byTheBook() {
	p.t.Helper()
	for ; p.booked < len(p.m.Log); p.booked++ {
		f := strings.Fields(p.m.Log[p.booked])
		if f[0] != "g" {
			continue
		}
		slot, tenant := atoi(f[4]), p.exactly(f[1])
		now, rate, common := slot-atoi(f[5]), setting.RecallRate(f[6]), setting.RecallRate(f[7])
		want := tenant.earliest(rate, now, p.epoch, mGrace)
		if !common.IsZero() {
			want = max(want, p.common.earliest(common, now, p.epoch, mGrace))
			p.common.grant(common, slot, now, p.epoch, 0)
		}
		if need := p.m.Need(); need > 0 {
			want = max(want, now+need) // none that no worker hears of in time
		}
		keep := int64(0)
		if len(f) > 10 {
			keep = atoi(f[10])
			if slot > tenant.earliest(rate, now, p.epoch, mGrace) {
				p.seen("kept its place")
			}
			if want := min(up(interval(common)), up(interval(rate))); !p.m.Policy.Shared || keep > want || keep < want-1 {
				p.t.Errorf("%s of %s keeps its place by %d µs, with shared spacing %t and an interval of %d", f[2], f[1], keep, p.m.Policy.Shared, want)
			}
		}
		tenant.grant(rate, slot, now, p.epoch, keep)
		if slot != want {
			p.t.Errorf("slot of %s of %s: %d, and by the book it is %d", f[2], f[1], slot-t0, want-t0)
		}
	}
	// The model decides when a timeline is looked at after a restart.
	for _, name := range p.names {
		if t := p.m.Tenant(name); t.Timeline.Seen > 0 {
			p.exactly(name).settle(p.m.Limits(t).Rate, t.Timeline.Seen, p.epoch)
		}
	}
	if r := p.m.Policy.Rate; p.m.Timeline.Seen > 0 && !r.IsZero() {
		p.common.settle(r, p.m.Timeline.Seen, p.epoch)
	}
}

func (p *player) exactly(tenant string) *exact {
	if p.exacts[tenant] == nil {
		p.exacts[tenant] = &exact{ahead: p.m.Ahead}
	}
	return p.exacts[tenant]
}

// likely is when the next ticket of a tenant would start by its own timeline, and by the common one
// too, by the book.
func (p *player) likely(t *model.Tenant) (own, both int64) {
	own = p.exactly(t.Name).likely(p.m.Limits(t).Rate, t.OutN, p.now, p.epoch, mGrace)
	if r := p.m.Policy.Rate; !r.IsZero() {
		return own, max(own, p.common.likely(r, int64(p.m.Out.Len()), p.now, p.epoch, mGrace))
	}
	return own, own
}

// full reports whether a tenant has as many jobs in flight as it may.
func (p *player) full(t *model.Tenant) bool { return t.OutN+t.RunN >= p.m.Limits(t).MaxInFlight }

// filed checks that a tenant with something to release is filed for it, and not too late.
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
	if t.Level() == 0 || p.full(t) || t.Until >= queue.Forever {
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
		latest = max(latest, t.Later.Lines()[0].At+p.lead())
	}
	if latest = max(latest, t.Until+p.lead()); at > latest {
		return fmt.Errorf("%s is filed under %d, %d µs after its head may leave", t.Name, at, at-latest)
	}
	return nil
}

func poolOf(tok string) string { return model.PoolOf(tok) }
