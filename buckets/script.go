package buckets

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The algorithms as Lua functions, and the script around them. See the head of each file.
var (
	//go:embed lua/fixed_window.lua
	luaFixedWindow string
	//go:embed lua/sliding_log.lua
	luaSlidingLog string
	//go:embed lua/sliding_counter.lua
	luaSlidingCounter string
	//go:embed lua/token_bucket.lua
	luaTokenBucket string
	//go:embed lua/each.lua
	luaEach string
	//go:embed lua/all.lua
	luaAll string
)

// luaName is the name of an algorithm in the scripts. The two buckets are duals, and
// share one.
func luaName(a Algorithm) string {
	switch a {
	case FixedWindow:
		return "fixed_window"
	case SlidingLog:
		return "sliding_log"
	case SlidingCounter:
		return "sliding_counter"
	default:
		return "token_bucket"
	}
}

var luaSources = map[string]string{
	"fixed_window":    luaFixedWindow,
	"sliding_log":     luaSlidingLog,
	"sliding_counter": luaSlidingCounter,
	"token_bucket":    luaTokenBucket,
}

// script is the text of a script and the hash by which Redis knows it.
type script struct{ source, hash string }

func newScript(source string) script {
	return script{source, redis.NewScript(source).Hash()}
}

// Each algorithm has a script that takes and one that looks: so Redis runs no more than
// it must, and the mode need not be sent. allScript is for several limits at once.
var (
	takeScripts = scriptsOfEach(true)
	lookScripts = scriptsOfEach(false)
	allScript   = newScript(LuaFunctions() + luaAll)
)

func scriptsOfEach(write bool) map[string]script {
	m := map[string]script{}
	for name, source := range luaSources {
		m[name] = newScript(source + "local ask, write = " + name + ", " + strconv.FormatBool(write) + "\n" + luaEach)
	}
	return m
}

// LuaFunctions returns the source of the algorithms as Lua functions and a table
// `algorithms` of them by name, for a larger script that asks limits along the way. Each is
// called as
//
//	ok, reply = algorithms[name](key, now_us, i, take, write)
//
// where ARGV[i] is the first of the arguments of InScript.Args after the name. For all or nothing,
// call each with take and write false; if all are ok, and so is whatever else the script requires,
// call each again with both true. See the heads of lua/*.lua.
func LuaFunctions() string {
	names := slices.Sorted(maps.Keys(luaSources))
	var b strings.Builder
	for _, name := range names {
		b.WriteString(luaSources[name])
	}
	b.WriteString("local algorithms = {")
	for _, name := range names {
		fmt.Fprintf(&b, "%s = %s, ", name, name)
	}
	b.WriteString("}\n")
	return b.String()
}

// scriptArgs is how many places a request's arguments take.
const scriptArgs = 8

// args returns the arguments for a request of n, which must not be changed.
func (p *plan) args(n int64) []any {
	if n == 1 && p.one != nil {
		return p.one // the common case; boxed once
	}
	ask := n
	if n > p.limit {
		ask, n = -1, 0
	}
	keep := ceilMillis(p.back)
	note := 0
	if p.note {
		// A test's clock may stand still or jump while Redis' own goes on, by which keys must not
		// expire too early.
		keep, note = max(keep, 3_600_000), 1
	}
	args := append(make([]any, 0, scriptArgs), ask, p.back, keep)
	if p.window > 0 {
		return append(args, p.limit, p.window, note)
	}
	cost := p.cost(n)
	return append(args, cost.us, cost.frac, p.full.us, p.full.frac, p.fraction)
}

// pad fills the places of a request that began at start, so that the next can follow.
func pad(args []any, start int) []any {
	for len(args) < start+scriptArgs {
		args = append(args, 0)
	}
	return args
}

func ceilMillis(us int64) int64 { return (us + 999) / 1000 }

// decode turns the reply for a request of n into an answer.
func (p *plan) decode(row []any, n int64) (answer, error) {
	var v [4]int64
	for i, x := range row {
		number, ok := x.(int64)
		if !ok {
			return answer{}, fmt.Errorf("%w: script answered %T at %d, want an integer", ErrStore, x, i)
		}
		if i < len(v) {
			v[i] = number
		}
	}
	want := 4
	if a := p.params.Algorithm; a != SlidingLog && a != SlidingCounter {
		want = 3
	}
	if len(row) != want {
		return answer{}, fmt.Errorf("%w: script answered %d numbers, want %d", ErrStore, len(row), want)
	}
	if n > p.limit {
		n, v[0] = 0, 1 // a look; the caller turns it into a refusal
	}
	// The value of a key may have been written by anybody: the arithmetic below needs numbers that
	// are possible.
	var a answer
	ok := true
	for _, x := range v {
		ok = ok && 0 <= x && x <= maxDouble
	}
	if ok {
		switch p.params.Algorithm {
		case FixedWindow:
			a = p.windowAnswer(n, v[0] == 1, v[1], v[2])
		case SlidingLog:
			a = p.logAnswer(n, v[0] == 1, v[1], v[2], v[3])
		case SlidingCounter:
			if ok = v[1] <= p.window; ok {
				a = p.counterAnswer(n, v[0] == 1, v[1], v[2], v[3])
			}
		default:
			if ok = v[2] < p.events; ok {
				a = p.bucketAnswer(n, v[0] == 1, span{v[1], v[2]})
			}
		}
	}
	if !ok || a.remaining < 0 || a.remaining > p.limit || a.retry < 0 || a.reset < 0 {
		return answer{}, fmt.Errorf("%w: script answered %v, which no state can mean: the value of the key is not ours", ErrStore, row)
	}
	return a, nil
}

// maxDouble is the largest whole number up to which scripts count without a gap.
const maxDouble = 1 << 53

// once is a command that go-redis does not send again when its reply was lost: nobody
// knows then whether it ran, and a second run would take twice. (A redirection within a
// cluster, or NOSCRIPT, says that it did not run; those are still followed.)
type once struct{ *redis.Cmd }

// NoRetry is what go-redis asks before it repeats a command.
func (once) NoRetry() bool { return true }

// eval runs a script by its hash, or sends its text where the server does not know it yet.
func eval(ctx context.Context, client redis.UniversalClient, s script, keys []string, argv []any) ([]any, error) {
	args := make([]any, 0, 3+len(keys)+len(argv))
	args = append(args, "evalsha", s.hash, len(keys))
	for _, key := range keys {
		args = append(args, key)
	}
	args = append(args, argv...)
	cmd := once{redis.NewCmd(ctx, args...)}
	err := client.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", s.source
		cmd = once{redis.NewCmd(ctx, args...)}
		err = client.Process(ctx, cmd)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	reply, err := cmd.Slice()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return reply, nil
}
