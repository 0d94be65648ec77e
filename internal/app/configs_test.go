package app

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// until waits for a line.
func (l *logged) until(t *testing.T, what string) {
	t.Helper()
	for begun := time.Now(); l.count(what) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("never logged: %s\n%s", what, l.text.String())
		}
	}
}

// in makes a daemon log there.
func (l *logged) in(cfg Config) Config {
	cfg.Log = slog.New(slog.NewTextHandler(l, nil))
	return cfg
}

func nothing(context.Context, *asynq.Task) error { return nil }

// Two daemons with different configurations both say so, and that of the one started last is in
// force; if Redis loses it, it is applied again, even by daemons without workers.
func TestTwoConfigs(t *testing.T) {
	testenv.Long(t, "lasts several looks at a configuration")
	t.Parallel()
	server := redistest.Start(t)
	admin, err := shaper.NewAdmin(server.Client(), "d")
	if err != nil {
		t.Fatal(err)
	}
	holds := func(depth int) {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			p, err := admin.Downstream(t.Context())
			if err == nil && p.Defaults.Depth == depth {
				return
			}
			if time.Since(begun) > patience {
				t.Fatalf("the depth is %d (%v), want %d", p.Defaults.Depth, err, depth)
			}
		}
	}
	with := func(depth int, log *logged, tenants ...string) Config {
		cfg := log.in(testConfig(nothing))
		cfg.Redis, cfg.Roles = server.URL(), Roles{Scheduler: true}
		cfg.Downstreams[0].Policy.Defaults.Depth = depth
		cfg.Downstreams[0].Tenants = map[string]shaper.Policy{}
		for _, name := range tenants {
			cfg.Downstreams[0].Tenants[name] = shaper.Policy{Rate: buckets.PerSecond(1)}
		}
		return cfg
	}
	var one, two, again logged
	first := begin(t, with(11, &one, "stays", "leaves"))
	holds(11)
	if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	holds(11)
	second := begin(t, with(22, &two, "stays"))
	holds(22)
	two.until(t, "tenants left the configuration: the defaults apply to them")
	two.until(t, "names=leaves")
	one.until(t, "another process has applied another configuration")
	two.until(t, "another process has another configuration")
	if n := one.count("configuration differs from the one before"); n > 0 {
		t.Errorf("the first daemon applied its own again, %d times", n)
	}
	first.end()
	second.end()

	// What was set by hand outlives a start with the same configuration, but with no other.
	if err := admin.SetDownstream(t.Context(), shaper.DownstreamPolicy{Defaults: shaper.Policy{Depth: 5}}); err != nil {
		t.Fatal(err)
	}
	begin(t, with(22, &again, "stays")).end()
	again.until(t, "what was set by hand since then stays")
	holds(5)
	begin(t, with(11, &again, "stays", "leaves")).end()
	holds(11)
	if n := again.count("level=ERROR"); n > 0 {
		t.Errorf("%d errors, though no two daemons ran", n)
	}
}
