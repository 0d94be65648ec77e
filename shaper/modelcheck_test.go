package shaper

import (
	"fmt"
	"sort"
	"strings"

	"github.com/redis/go-redis/v9"
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
  redis.call('ZRANGE', P .. 'due', 0, -1, 'WITHSCORES'), redis.call('ZRANGE', P .. 'ready', 0, -1), T, log }`)

// view is what lookScript saw.
type view struct {
	ds, pools        map[string]string
	out, run, due    map[string]string
	ready            []string
	wait             map[string][]string
	later, state     map[string]map[string]string
	dead, hash, ends map[string]map[string]string
	outs             map[string]map[string]string
	bodies           map[string][]string
	log              []string
}

// String prints maps sorted: a hash may change its order by being read.
func (v view) String() string {
	type plain view
	return fmt.Sprintf("%+v", plain(v))
}

func list(v any) (l []string) {
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

func look(w *world, names, ids []string) view {
	args := []any{strings.Join(names, " ")}
	for _, id := range ids {
		args = append(args, id)
	}
	raw, err := lookScript.Run(w.t.Context(), w.rdb, w.q.keys(), args...).Result()
	w.must(err)
	r := replyOf(raw)
	v := view{ds: pairs(r.next()), pools: pairs(r.next()), out: pairs(r.next()), run: pairs(r.next()),
		due: pairs(r.next()), ready: list(r.next()),
		wait: map[string][]string{}, bodies: map[string][]string{}, later: map[string]map[string]string{},
		state: map[string]map[string]string{}, dead: map[string]map[string]string{}, hash: map[string]map[string]string{},
		ends: map[string]map[string]string{}, outs: map[string]map[string]string{}}
	tenants := replyOf(r.next())
	for _, name := range names {
		t := replyOf(tenants.next())
		v.wait[name], v.later[name], v.state[name] = list(t.next()), pairs(t.next()), pairs(t.next())
		v.bodies[name], v.dead[name], v.hash[name] = list(t.next()), pairs(t.next()), pairs(t.next())
		sort.Strings(v.bodies[name])
		v.ends[name] = map[string]string{}
		for i, line := range list(t.next()) {
			how, _, _ := strings.Cut(line, " ")
			v.ends[name][ids[i]] = how
		}
		v.outs[name] = pairs(t.next())
	}
	v.log = list(r.next())
	return v
}

// diff compares all that the model knows with what Redis holds. Every job is in exactly one place by it.
func (m *model) diff(v view, now int64) error {
	var wrong []string
	want := func(what string, got, want any) {
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			wrong = append(wrong, fmt.Sprintf("%s: %s, want %s", what, g, w))
		}
	}
	out, run, pools := map[string]string{}, map[string]string{}, map[string]string{}
	for _, name := range m.names {
		t := m.tenants[name]
		later, dead, state, outs := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
		var bodies []string
		for id, j := range t.jobs {
			if j.ended() {
				want("end of "+id, v.ends[name][id], j.st)
				continue
			}
			want("end of "+id, v.ends[name][id], "")
			bodies = append(bodies, id)
			if j.st != "n" && j.st != "l" {
				state[id] = fmt.Sprint(j.st, " ", j.rel, " ", j.att, " ", j.fg, " ", j.cr, " ", j.tok, " ", j.slot, " ", j.given, " ", j.th)
			}
			at := fmt.Sprint(j.at)
			switch j.st {
			case "l", "z":
				later[id] = at
			case "x":
				dead[id] = at
			case "o":
				out[name+" "+id] = at
				outs[id] = fmt.Sprint(j.since)
				if j.at > j.left+mTicket {
					wrong = append(wrong, fmt.Sprintf("%s may be out for longer than a ticket lives", id))
				}
			case "r", "c":
				run[name+" "+id] = at
				pools[poolOf(j.tok)+":n"] += "|"
			}
		}
		sort.Strings(bodies)
		want("waiting of "+name, v.wait[name], t.wait)
		want("later of "+name, v.later[name], later)
		want("out of "+name, v.outs[name], outs)
		want("dead of "+name, v.dead[name], dead)
		want("bodies of "+name, v.bodies[name], bodies)
		got := map[string]string{}
		for id, line := range v.state[name] {
			words := strings.Fields(line)
			var job Job
			if err := job.readState(line); err != nil {
				wrong = append(wrong, err.Error())
			}
			got[id] = strings.Join(append(words[:7:7], fmt.Sprint(strings.Contains(words[9], ",granted")), fmt.Sprint(job.Throttles)), " ")
		}
		want("states of "+name, got, state)
		want("out, run of "+name, [2]int64{atoi(v.hash[name]["out"]), atoi(v.hash[name]["run"])}, [2]int64{t.out, t.run})
		want("throttled in a row of "+name, atoi(v.hash[name]["row"]), t.row)
		want("starts of "+name, atoi(v.hash[name]["started"]), t.started)
		if err := m.filed(t, v, now); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	want("out", v.out, out)
	want("run", v.run, run)
	o, r := m.inFlight()
	want("out, run of the downstream", [2]int64{atoi(v.ds["out"]), atoi(v.ds["run"])}, [2]int64{o, r})
	for _, f := range counterFields {
		sum := int64(0)
		for _, name := range m.names {
			sum += atoi(v.hash[name][f])
		}
		want(f+" of the downstream", atoi(v.ds[f]), sum)
	}
	counts := map[string]string{}
	for k, n := range v.pools {
		if strings.HasSuffix(k, ":n") {
			counts[k] = strings.Repeat("|", int(atoi(n)))
		}
	}
	want("running by pool", counts, pools)
	logged := map[string]int{}
	for _, e := range v.log {
		logged[e[:1]]++
	}
	want("entries of the log", logged, m.logged)
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return nil
}

// filed checks that a tenant that has something to release is in the books for it, and not too late.
func (m *model) filed(t *mTenant, v view, now int64) error {
	var later int64 = -1
	for _, j := range t.jobs {
		if (j.st == "l" || j.st == "z") && (later < 0 || j.at < later) {
			later = j.at
		}
	}
	if t.out+t.run >= t.cap && v.due[t.name] != "" {
		return fmt.Errorf("%s is filed under %s and has all in flight that it may: a scheduler would look again and again", t.name, v.due[t.name])
	}
	if len(t.wait) == 0 && later < 0 || t.out+t.run >= t.cap || t.until >= forever {
		return nil
	}
	for _, name := range v.ready {
		if name == t.name {
			return nil
		}
	}
	at, ok := v.due[t.name]
	if !ok {
		return fmt.Errorf("%s is stranded: %d wait, the next later one is due at %d, %d in flight of %d, and it is neither due nor ready",
			t.name, len(t.wait), later, t.out+t.run, t.cap)
	}
	latest := t.tl.likely(t.rate, t.out, now, mEpoch, mGrace)
	if len(t.wait) == 0 {
		latest = max(latest, later+mLead)
	}
	if latest = max(latest, t.until+mLead); atoi(at) > latest {
		return fmt.Errorf("%s is filed under %s, %d µs after its head may leave", t.name, at, atoi(at)-latest)
	}
	return nil
}

func poolOf(tok string) string { pool, _, _ := strings.Cut(tok, "."); return pool }
