package buckets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

var opened atomic.Int64

// openOn makes limiters on one server, each with keys of its own.
func openOn(client redis.UniversalClient) opener {
	return func(t testing.TB, params Params, clock func() int64) settable {
		t.Helper()
		l, err := NewRedis(client, params, RedisConfig{Prefix: fmt.Sprintf("test%d", opened.Add(1)), Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	runSuite(t, openOn(redistest.Start(t).Client()))
}

func TestMiniredis(t *testing.T) {
	t.Parallel()
	runSuite(t, openOn(redistest.Mini(t)))
}

// onServerTime makes a limiter that reads Redis' clock, as users do.
func onServerTime(t testing.TB, client redis.UniversalClient, params Params) *Redis {
	t.Helper()
	return openOn(client)(t, params, nil).(*Redis)
}

// slow returns those of paramSets whose windows are so long that a test does not see one end.
func slow() []Params {
	all := paramSets()
	for i := range all {
		if all[i].Window > 0 {
			all[i].Window = MaxPeriod
		} else {
			all[i].Rate = Rate{1, time.Hour}
		}
	}
	return all
}

// dump is all that the server holds, with expiry.
func dump(t *testing.T, client *redis.Client) string {
	t.Helper()
	ctx := context.Background()
	var b strings.Builder
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		fmt.Fprintf(&b, "%s=%q expires %d\n", key, client.Dump(ctx, key).Val(), client.PExpireTime(ctx, key).Val())
	}
	return b.String()
}

func TestRedisRefusalsAndLooksWriteNothing(t *testing.T) {
	client, ctx := redistest.Start(t).Client(), context.Background()
	for _, params := range slow() {
		l := onServerTime(t, client, params)
		client.FlushAll(ctx)
		for _, n := range []int64{0, 6, 1e18} {
			l.AllowN(ctx, "k", n)
			l.Check(ctx, "k", n)
		}
		if d, err := l.Peek(ctx, "k"); err != nil || d.Remaining != 5 {
			t.Errorf("%s: Peek: %+v, %v", params.Algorithm, d, err)
		}
		if got := dump(t, client); got != "" {
			t.Errorf("%s: looks at an unknown key left %s", params.Algorithm, got)
		}
		l.AllowN(ctx, "k", 4)
		before := dump(t, client)
		if d, err := l.AllowN(ctx, "k", 2); err != nil || d.Allowed {
			t.Errorf("%s: 4 and 2 of 5: %+v, %v", params.Algorithm, d, err)
		}
		for _, n := range []int64{0, 2, 5, 6} {
			l.AllowN(ctx, "k", n)
		}
		l.Check(ctx, "k", 1)
		if after := dump(t, client); after != before {
			t.Errorf("%s: refusals changed\n%s to\n%s", params.Algorithm, before, after)
		}
	}
}

// Nor does a refusal after some time, when a window has passed or an entry expired.
func TestRedisLateRefusalsWriteNothing(t *testing.T) {
	ctx := context.Background()
	for _, a := range []Algorithm{SlidingLog, SlidingCounter, TokenBucket} {
		params := Params{Algorithm: a, Limit: 5, Window: 10 * time.Second}
		if a == TokenBucket {
			params.Window, params.Rate = 0, Rate{1, 10 * time.Second}
		}
		server := miniredis.RunT(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		defer client.Close()
		l := onServerTime(t, client, params)
		start := time.UnixMicro(t0 - t0%10_000_000)
		for _, step := range []struct {
			at time.Duration
			n  int64
			ok bool
		}{{0, 2, true}, {5 * time.Second, 3, true}, {12 * time.Second, 5, false}} {
			server.SetTime(start.Add(step.at))
			before := server.Dump()
			d, err := l.AllowN(ctx, "k", step.n)
			if err != nil || d.Allowed != step.ok {
				t.Errorf("%s at %v: %+v, %v", a, step.at, d, err)
			}
			if after := server.Dump(); !step.ok && after != before {
				t.Errorf("%s: a refusal changed\n%s to\n%s", a, before, after)
			}
		}
	}
}

func TestRedisKeysExpire(t *testing.T) {
	client, ctx := redistest.Start(t).Client(), context.Background()
	for _, params := range paramSets() {
		l := onServerTime(t, client, params)
		for range 3 {
			asked := time.Now()
			d, err := l.Allow(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			ttl := client.PTTL(ctx, l.Key("k")).Val()
			// Until it is as if never used, and at most three windows or a bucket's time.
			// The TTL is in whole ms.
			if took := time.Since(asked); ttl < d.ResetAfter-took-2*time.Millisecond || ttl > 30*time.Second {
				t.Errorf("%s: expires in %v, %v after it was asked; it counts for %v", params.Algorithm, ttl, took, d.ResetAfter)
			}
		}
	}
	// The shortest use still is a whole millisecond: Redis refuses an expiry of 0.
	for _, params := range []Params{
		{Algorithm: TokenBucket, Limit: 1, Rate: Rate{MaxEvents, time.Microsecond}},
		{Algorithm: FixedWindow, Limit: 1, Window: time.Microsecond},
		{Algorithm: SlidingLog, Limit: 1, Window: time.Microsecond},
		{Algorithm: SlidingCounter, Limit: 1, Window: time.Microsecond},
	} {
		if d, err := onServerTime(t, client, params).Allow(ctx, "k"); err != nil || !d.Allowed {
			t.Errorf("%+v: %+v, %v", params, d, err)
		}
	}
}

// The server's own clock steps; miniredis lets us set it.
func TestRedisServerClockSteps(t *testing.T) {
	ctx := context.Background()
	for _, params := range paramSets() {
		server := miniredis.RunT(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		defer client.Close()
		l := onServerTime(t, client, params)
		now := time.UnixMicro(t0)
		server.SetTime(now)
		first, err := l.AllowN(ctx, "k", 5)
		if err != nil || !first.Allowed {
			t.Fatal(first, err)
		}
		server.SetTime(now.Add(-time.Hour))
		d, err := l.Allow(ctx, "k")
		if err != nil || d.Allowed || d.RetryAfter > 20*time.Second {
			t.Errorf("%s: an hour back: %+v, %v", params.Algorithm, d, err)
		}
		if ttl := server.TTL(l.Key("k")); ttl <= 0 {
			t.Errorf("%s: after a step the key has a TTL of %v", params.Algorithm, ttl)
		}
		server.SetTime(now.Add(-time.Hour + d.RetryAfter - time.Microsecond))
		if d, err := l.Allow(ctx, "k"); err != nil || d.Allowed {
			t.Errorf("%s: 1 µs before RetryAfter: %+v, %v", params.Algorithm, d, err)
		}
		server.SetTime(now.Add(-time.Hour + d.RetryAfter))
		if d, err := l.Allow(ctx, "k"); err != nil || !d.Allowed {
			t.Errorf("%s: after RetryAfter: %+v, %v", params.Algorithm, d, err)
		}
	}
}

// brokenConn loses the reply of what was sent while armed: the server has run it, and
// the connection breaks.
type brokenConn struct {
	net.Conn
	armed *atomic.Bool
}

func (c brokenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.armed.CompareAndSwap(true, false) {
		c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

func TestRedisLostReplyTakesOnce(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	var armed atomic.Bool
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: 3, PoolSize: 1, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return brokenConn{conn, &armed}, err
		},
	})
	defer client.Close()
	for _, params := range slow() {
		l := onServerTime(t, client, params)
		if _, err := l.Allow(ctx, "other"); err != nil { // the script is known and a connection open
			t.Fatal(err)
		}
		armed.Store(true)
		if d, err := l.Allow(ctx, "k"); !errors.Is(err, ErrStore) || d.Allowed {
			t.Errorf("%s: a lost reply: %+v, %v; want ErrStore", params.Algorithm, d, err)
		}
		if d, err := l.Peek(ctx, "k"); err != nil || d.Remaining != 4 {
			t.Errorf("%s: after one lost reply %d of 5 remain, %v; want 4: taken once", params.Algorithm, d.Remaining, err)
		}
	}
}

func TestRedisForgetsTheScripts(t *testing.T) {
	client, ctx := redistest.Start(t).Client(), context.Background()
	for _, params := range slow() {
		l := onServerTime(t, client, params)
		for want := int64(4); want >= 2; want-- {
			if err := client.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			if d, err := l.Allow(ctx, "k"); err != nil || d.Remaining != want {
				t.Errorf("%s: after SCRIPT FLUSH: %+v, %v; want %d left", params.Algorithm, d, err, want)
			}
		}
	}
}

// A store that fails is an error, never a refusal and never an admission.
func TestRedisFailures(t *testing.T) {
	t.Parallel()
	server, ctx := redistest.Start(t), context.Background()
	client := server.Client()
	for _, params := range slow() {
		l := onServerTime(t, client, params)
		fails := func(why string, ctx context.Context) {
			t.Helper()
			if d, err := l.Allow(ctx, "k"); !errors.Is(err, ErrStore) || d != (Decision{}) {
				t.Errorf("%s: %s: %+v, %v; want ErrStore", params.Algorithm, why, d, err)
			}
		}
		client.HSet(ctx, l.Key("k"), "not", "ours")
		fails("a key of another type", ctx)
		client.Del(ctx, l.Key("k"))
		if params.Algorithm == SlidingLog {
			client.RPush(ctx, l.Key("k"), "nonsense")
		} else {
			client.Set(ctx, l.Key("k"), "nonsense", 0)
		}
		fails("a key with nonsense", ctx)
		if err := l.Reset(ctx, "k"); err != nil {
			t.Error(err)
		}
		l.AllowN(ctx, "k", 5)

		client.ReplicaOf(ctx, "127.0.0.1", "1") // now a read-only replica
		if d, err := l.Allow(ctx, "k"); err != nil || d.Allowed {
			t.Errorf("%s: a refusal writes nothing, so a replica can say it: %+v, %v", params.Algorithm, d, err)
		}
		if d, err := l.Peek(ctx, "new"); err != nil || d.Remaining != 5 {
			t.Errorf("%s: Peek on a replica: %+v, %v", params.Algorithm, d, err)
		}
		if _, err := l.Allow(ctx, "new"); !errors.Is(err, ErrStore) {
			t.Errorf("%s: taking on a replica: %v, want ErrStore", params.Algorithm, err)
		}
		client.ReplicaOf(ctx, "no", "one")

		gone, cancel := context.WithCancel(ctx)
		cancel()
		fails("a cancelled context", gone)
		if _, err := l.Allow(gone, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a cancelled context: %v", params.Algorithm, err)
		}
	}

	l := onServerTime(t, client, slow()[0])
	server.Pause()
	hung, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if d, err := l.Allow(hung, "k"); !errors.Is(err, ErrStore) || d.Allowed {
		t.Errorf("a server that hangs: %+v, %v", d, err)
	}
	server.Continue()
	server.Kill()
	if d, err := l.Allow(ctx, "k"); !errors.Is(err, ErrStore) || d.Allowed {
		t.Errorf("a server that is gone: %+v, %v", d, err)
	}
	if err := l.Reset(ctx, "k"); !errors.Is(err, ErrStore) {
		t.Errorf("Reset without a server: %v", err)
	}
}

// Exactly the limit passes, however many clients and goroutines ask at once.
func TestRedisConcurrent(t *testing.T) {
	server := redistest.Start(t)
	clients := []*redis.Client{server.Client(), server.Client(), server.Client(), server.Client()}
	for _, params := range slow() {
		params.Limit = 100
		prefix := fmt.Sprintf("test%d", opened.Add(1))
		var passed, failed atomic.Int64
		var wg sync.WaitGroup
		for g := range 48 {
			l, err := NewRedis(clients[g%len(clients)], params, RedisConfig{Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				for range 5 {
					switch d, err := l.Allow(context.Background(), "k"); {
					case err != nil:
						failed.Add(1)
					case d.Allowed:
						passed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if passed.Load() != 100 || failed.Load() != 0 {
			t.Errorf("%s: %d passed and %d failed, want 100 and 0", params.Algorithm, passed.Load(), failed.Load())
		}
	}
}

func TestRedisKey(t *testing.T) {
	client := redistest.Mini(t)
	params := Params{Algorithm: SlidingLog, Limit: 5, Window: time.Second}
	for _, tc := range []struct {
		cfg       RedisConfig
		key, want string
	}{
		{RedisConfig{}, "acme", "buckets:sliding-log:{acme}"},
		{RedisConfig{Prefix: "shaper", Tag: "transcoder"}, "acme", "shaper:{transcoder}:sliding-log:acme"},
		{RedisConfig{}, "a}{b%", "buckets:sliding-log:{a%7D%7Bb%25}"}, // a brace would end the tag
	} {
		l, err := NewRedis(client, params, tc.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Key(tc.key); got != tc.want {
			t.Errorf("Key(%q) = %q, want %q", tc.key, got, tc.want)
		}
	}
	for _, cfg := range []RedisConfig{{Prefix: "{"}, {Tag: "a}"}} {
		if _, err := NewRedis(client, params, cfg); !errors.Is(err, ErrParameter) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := NewRedis(nil, params, RedisConfig{}); !errors.Is(err, ErrParameter) {
		t.Errorf("no client: %v", err)
	}
}
