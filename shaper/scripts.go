package shaper

import (
	"context"
	"embed"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/crashpoint"
	"github.com/jobshaper/jobshaper/internal/usable"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// luaScript is a script of the queue.
type luaScript struct {
	*redis.Script
	name          string // of its own file
	before, after string // its crash points
}

// luaScripts are all of them.
var luaScripts []*luaScript

// ScriptHashes returns the SHA-1 of each script by its name, as MONITOR and SLOWLOG show it in EVALSHA: gate, finish and so on, the
// files of shaper/lua.
func ScriptHashes() map[string]string {
	out := map[string]string{}
	for _, s := range luaScripts {
		out[s.name] = s.Hash()
	}
	return out
}

// script assembles a script from the files that it stands on and its own, which comes last. The text is constant:
// names and values reach a script through KEYS and ARGV only.
func script(files ...string) *luaScript {
	var src []byte
	for _, f := range files {
		switch f {
		case "algorithms": // of the admission checks
			src = append(src, buckets.LuaFunctions()...)
			continue
		case "timeline":
			src = append(src, buckets.LuaTimeline()...)
			continue
		case "fields": // of policies
			src = append(src, luaFields()...)
			continue
		}
		b, err := luaFiles.ReadFile("lua/" + f + ".lua")
		if err != nil {
			panic(err) // an embedded file is missing: the build is broken
		}
		src = append(src, sabotaged(f, b)...)
	}
	name := files[len(files)-1]
	s := &luaScript{redis.NewScript(string(src)), name, name + ".before", name + ".after"}
	luaScripts = append(luaScripts, s)
	return s
}

var (
	enqueueScript  = script("base", "fields", "enqueue_busy", "log", "hash", "timeline", "tenant", "job", "pools", "place", "expect", "algorithms", "admit", "enqueue")
	releaseScript  = script("base", "fields", "log", "hash", "timeline", "tenant", "job", "pools", "pick", "release")
	gateScript     = script("base", "fields", "log", "hash", "timeline", "tenant", "job", "slot", "gate")
	finishScript   = script("base", "fields", "log", "hash", "timeline", "tenant", "job", "pools", "pick", "slot", "finish")
	beatScript     = script("base", "fields", "log", "hash", "timeline", "tenant", "job", "pools", "beat")
	givebackScript = script("base", "fields", "log", "hash", "timeline", "tenant", "job", "giveback")
	cancelScript   = script("base", "fields", "log", "hash", "timeline", "tenant", "job", "cancel")
	deadScript     = script("base", "fields", "log", "hash", "timeline", "tenant", "job", "dead")
	purgeScript    = script("base", "fields", "log", "hash", "timeline", "tenant", "job", "purge")
	policyScript   = script("base", "fields", "log", "hash", "timeline", "tenant", "policies", "policy")
	configScript   = script("base", "fields", "log", "hash", "timeline", "tenant", "policies", "config")
	pauseScript    = script("base", "fields", "log", "hash", "timeline", "tenant", "pause")
	forgetScript   = script("base", "fields", "log", "hash", "timeline", "tenant", "forget")
	findScript     = script("base", "fields", "log", "hash", "timeline", "tenant", "job", "place", "find")
	statsScript    = script("base", "fields", "log", "hash", "timeline", "tenant", "job", "pools", "expect", "stats")
)

// batch is how many items a script handles at most in one call: BATCH in lua/base.lua.
const batch = 50

// queue is one downstream in Redis: what Client, Scheduler, Gate and Admin share.
type queue struct {
	rdb        redis.UniversalClient
	downstream string
	prefix     string
	clock      func() int64 // µs since the epoch for a test that pretends one; nil = Redis' clock
}

func newQueue(rdb redis.UniversalClient, downstream string) (queue, error) {
	if err := ValidName("downstream", downstream); err != nil {
		return queue{}, err
	}
	if value, want := usable.Client(rdb); want != "" {
		return queue{}, &FieldError{"redis", value, want}
	}
	return queue{rdb: rdb, downstream: downstream, prefix: prefix(downstream)}, nil
}

// keys are what a script is told of its keys: the prefix of all. The second one is for Redis Cluster alone. While a slot moves to
// another node, the old one sends on calls whose keys it does not have, which the prefix never is; the new one would then
// run them on what has arrived so far. Of a call with several keys it wants to have all, and until the slot has moved as a whole
// it says TRYAGAIN.
func (q queue) keys() []string { return []string{q.prefix, q.downstreamKey()} }

// args puts the clock, ARGV[1] of every script, before the others.
func (q queue) args(args ...any) []any {
	now := int64(0)
	if q.clock != nil {
		now = q.clock()
	}
	return append([]any{strconv.FormatInt(now, 10)}, args...)
}

// run calls a script. Every one of them may be repeated, so go-redis may do so when a reply is lost.
func (q queue) run(ctx context.Context, s *luaScript, doing string, args ...any) (any, error) {
	crashpoint.Hit(s.before)
	reply, err := s.Run(ctx, q.rdb, q.keys(), q.args(args...)...).Result()
	crashpoint.Hit(s.after)
	if err != nil {
		return nil, q.failed(ctx, doing, err, args...)
	}
	return reply, nil
}

// runSeen is run for a script of a tenant that must have been seen ("" = the downstream): if not, an *UnseenError. See unseen in lua/tenant.lua.
func (q queue) runSeen(ctx context.Context, s *luaScript, doing, tenant string, args ...any) (any, error) {
	v, err := q.run(ctx, s, doing, append([]any{tenant}, args...)...)
	switch v {
	case "tenant":
		return nil, &UnseenError{q.downstream, tenant}
	case "downstream":
		return nil, &UnseenError{q.downstream, ""}
	}
	return v, err
}

// reply reads the fields of a script's reply in their order. A field that is missing or of another kind
// reads as zero: what comes from Redis is not trusted to be well formed.
type reply struct {
	fields []any
	i      int
}

func replyOf(v any) *reply {
	fields, _ := v.([]any)
	return &reply{fields: fields}
}

func (r *reply) more() bool { return r.i < len(r.fields) }

func (r *reply) next() any {
	if !r.more() {
		return nil
	}
	r.i++
	return r.fields[r.i-1]
}

func (r *reply) str() string {
	switch v := r.next().(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

func (r *reply) int() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

func (r *reply) micros() time.Duration { return time.Duration(r.int()) * time.Microsecond }

// score reads the score of a sorted set, µs since the epoch; the zero time where there is none.
func (r *reply) score() time.Time {
	us, _ := strconv.ParseFloat(r.str(), 64)
	return instant(int64(us))
}

// instant reads µs since the epoch; 0 is the zero time.
func (r *reply) instant() time.Time { return instant(r.int()) }

func instant(us int64) time.Time {
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

func micros(d time.Duration) string { return strconv.FormatInt(int64(d/time.Microsecond), 10) }
