package buckets

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/coalesce"
	"github.com/jobshaper/jobshaper/internal/usable"
)

// RedisConfig configures a Redis limiter. The zero value is usable.
type RedisConfig struct {
	// Prefix begins every key; "" means "buckets". Limiters that limit different things
	// need different prefixes.
	Prefix string

	// Tag is the hash tag of every key, which puts all keys of the limiter, and of others
	// with the same tag, into one slot of a cluster, so that TakeAll can ask them together.
	// "" means that each key is its own tag, which spreads them.
	Tag string

	// Clock returns the time in µs since the epoch, for tests and traces; nil means the
	// time of the Redis server, the only clock that all callers share. With a Clock, keys
	// live at least an hour.
	Clock func() int64
}

// Redis is a Limiter whose state is in Redis, shared by all who use the same prefix, tag and
// algorithm. A call is one script: atomic, and one round trip. The state of a key is one string (a
// list for the sliding log), which expires once the key is as if never used.
//
// Calls that many goroutines make at once share scripts (except where the client is a cluster's and
// there is no Tag): a limiter has at most two under way, and calls that come meanwhile go out with
// the next. Each caller's context ends that caller's wait alone.
//
// A call whose reply was lost is not sent again (go-redis would, up to three times): it may have
// taken what it asked for, but it admitted nobody, and it ends with ErrStore. So a broken
// connection can cost the key a request, and never admits one twice.
//
// The client must have ContextTimeoutEnabled, or a call would wait for its ReadTimeout
// whatever the context says.
//
// The clock is the server's. If it steps back by more than an interval, or a window, as it may
// after a failover, a key's state moves back with it when the key is next asked: nothing is
// credited, and nobody waits longer than was promised.
//
// Refusals and looks write nothing, except after such a step or after the limit was lowered below
// what is used; Peek and Check never write.
type Redis struct {
	client        redis.UniversalClient
	clock         func() int64
	before, after string // what surrounds a key in its name in Redis
	name          string // of the algorithm in the scripts
	take, look    script
	takes         *coalesce.Group[request, taken] // nil where keys may lie in different slots

	plan  atomic.Pointer[plan]
	setMu sync.Mutex
}

var _ Limiter = (*Redis)(nil)

// NewRedis returns a limiter on the client, which it does not close, or an error that
// names the bad field. It does not talk to the server yet.
func NewRedis(client redis.UniversalClient, params Params, cfg RedisConfig) (*Redis, error) {
	if value, want := usable.Client(client); want != "" {
		return nil, fmt.Errorf("%w: client: %s: want %s", ErrParameter, value, want)
	}
	if cfg.Prefix == "" {
		cfg.Prefix = "buckets"
	}
	if strings.ContainsAny(cfg.Prefix, "{}") {
		return nil, fmt.Errorf("%w: Prefix %q: want none of {}, which Redis Cluster reads as a hash tag", ErrParameter, cfg.Prefix)
	}
	if strings.ContainsAny(cfg.Tag, "{}") {
		return nil, fmt.Errorf("%w: Tag %q: want none of {}, which are put around it", ErrParameter, cfg.Tag)
	}
	name := luaName(params.Algorithm)
	r := &Redis{client: client, clock: cfg.Clock, name: name, take: takeScripts[name], look: lookScripts[name]}
	// The algorithm is part of the key: the state of one means nothing to another.
	r.before, r.after = cfg.Prefix+":"+string(params.Algorithm)+":{", "}"
	if cfg.Tag != "" {
		r.before, r.after = cfg.Prefix+":{"+cfg.Tag+"}:"+string(params.Algorithm)+":", ""
	}
	if _, single := client.(*redis.Client); (single || cfg.Tag != "") && cfg.Clock == nil {
		r.takes = coalesce.New(maxTakes, r.takeEach)
	}
	p, err := newPlan(params, r.kind())
	if err != nil {
		return nil, err
	}
	r.plan.Store(p)
	return r, nil
}

func (r *Redis) kind() clockKind {
	if r.clock != nil {
		return callerClock
	}
	return storeClock
}

// Params returns the parameters in force.
func (r *Redis) Params() Params { return r.plan.Load().params }

// Set changes the parameters; the next call from this process follows them. What keys have used
// stays used, whichever parameters they used it under. The algorithm cannot change.
func (r *Redis) Set(params Params) error {
	p, err := newPlan(params, r.kind())
	if err != nil {
		return err
	}
	r.setMu.Lock()
	defer r.setMu.Unlock()
	if err := sameAlgorithm(r.plan.Load().params, params); err != nil {
		return err
	}
	r.plan.Store(p)
	return nil
}

// Key returns the name of the Redis key that holds the state of a key. A brace in it
// would end the hash tag early, so it is escaped.
func (r *Redis) Key(key string) string {
	if strings.ContainsAny(key, "%{}") {
		key = escapeBraces.Replace(key)
	}
	return r.before + key + r.after
}

var escapeBraces = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func (p *plan) finish(reply []any, n int64) (Decision, error) {
	a, err := p.decode(reply, n)
	switch {
	case err != nil:
		return Decision{}, err
	case n > p.limit:
		return p.never(a, n)
	}
	return p.decision(a), nil
}

// Allow implements Limiter.
func (r *Redis) Allow(ctx context.Context, key string) (Decision, error) {
	return r.AllowN(ctx, key, 1)
}

// AllowN implements Limiter.
func (r *Redis) AllowN(ctx context.Context, key string, n int64) (Decision, error) {
	if r.takes == nil {
		return r.ask(ctx, r.take, key, n)
	}
	if err := invalid(key, n); err != nil {
		return Decision{}, err
	}
	p := r.plan.Load()
	t, err := r.takes.Do(ctx, request{r.Key(key), p.args(n)})
	switch {
	case err != nil:
		return Decision{}, fmt.Errorf("%w: %w", ErrStore, err)
	case t.err != nil:
		return Decision{}, t.err
	}
	return p.finish(t.row, n)
}

// maxTakes is how many requests may share a script: some 0.4 ms of Redis' time.
const maxTakes = 64

// request is one of several that share a script; args are not changed.
type request struct {
	key  string
	args []any
}

// taken is what a script answers to a request.
type taken struct {
	row []any
	err error
}

// takeEach runs the take script for requests, in order. One that Redis cannot serve fails alone.
func (r *Redis) takeEach(ctx context.Context, batch []request) []taken {
	keys := make([]string, len(batch))
	args := append(make([]any, 0, 1+len(batch)*scriptArgs), "")
	for i, q := range batch {
		keys[i] = q.key
		start := len(args)
		args = append(args, q.args...)
		if len(batch) > 1 {
			args = pad(args, start)
		}
	}
	out := make([]taken, len(batch))
	rows, err := eval(ctx, r.client, r.take, keys, args)
	switch {
	case err == nil && len(batch) == 1:
		out[0].row = rows
		return out
	case err == nil && len(rows) != len(batch):
		err = fmt.Errorf("%w: script answered %d rows, want %d", ErrStore, len(rows), len(batch))
	}
	for i := range out {
		if out[i].err = err; err != nil {
			continue
		}
		switch row := rows[i].(type) {
		case []any:
			out[i].row = row
		case string:
			out[i].err = fmt.Errorf("%w: %w", ErrStore, rowError(row))
		default:
			out[i].err = fmt.Errorf("%w: script answered %T, want a list", ErrStore, row)
		}
	}
	return out
}

// rowError is what Redis said of one request among several: the same as it would have said of that
// request alone.
type rowError string

func (e rowError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (e rowError) RedisError() {}

// Check answers as AllowN would, and changes nothing.
func (r *Redis) Check(ctx context.Context, key string, n int64) (Decision, error) {
	return r.ask(ctx, r.look, key, n)
}

// Peek implements Limiter.
func (r *Redis) Peek(ctx context.Context, key string) (Decision, error) {
	return r.ask(ctx, r.look, key, 0)
}

func (r *Redis) ask(ctx context.Context, s script, key string, n int64) (Decision, error) {
	if err := invalid(key, n); err != nil {
		return Decision{}, err
	}
	p := r.plan.Load()
	args := append(append(make([]any, 0, 1+scriptArgs), r.now()), p.args(n)...)
	reply, err := eval(ctx, r.client, s, []string{r.Key(key)}, args)
	if err != nil {
		return Decision{}, err
	}
	return p.finish(reply, n)
}

// now is the first argument of the scripts.
func (r *Redis) now() any {
	if r.clock == nil {
		return ""
	}
	return clampInstant(r.clock())
}

// Reset implements Limiter.
func (r *Redis) Reset(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := r.client.Del(ctx, r.Key(key)).Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return nil
}
