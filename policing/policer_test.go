package policing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// backends are the places where a chain's state may be. Their deadline is one that even a busy
// machine meets, since Redis is well here.
func backends(t *testing.T) map[string]Config {
	return map[string]Config{
		"memory":    {},
		"redis":     {Redis: redistest.Start(t).Client(), Deadline: time.Minute},
		"miniredis": {Redis: redistest.Mini(t), Deadline: time.Minute},
	}
}

// A refusal by any rule leaves all others unconsumed, and says which rule it was and how long to
// wait.
func TestAllOrNothing(t *testing.T) {
	rules := []string{
		"token_bucket 1/h burst 5 name=burst",
		"fixed_window 5/366d name=quota per=downstream",
		"sliding_log 5/h name=log per=global",
		"sliding_counter 5/366d name=counter",
		"leaky_bucket 1/h depth 5 name=meter",
	}
	for name, cfg := range backends(t) {
		for tight := range rules {
			t.Run(fmt.Sprintf("%s/%d", name, tight), func(t *testing.T) {
				cfg.Prefix = fmt.Sprint(name, tight)
				mine := slices.Clone(rules)
				mine[tight] = strings.NewReplacer(" 5/", " 2/", "burst 5", "burst 2", "depth 5", "depth 2").Replace(mine[tight])
				p := open(t, cfg, mine...)
				if v := check(t, p, acme, 2); !v.Allowed || v.Remaining != 0 || v.Refused != "" || v.RetryAfter != 0 {
					t.Fatalf("2 of 2: %+v", v)
				}
				want := []int64{3, 3, 3, 3, 3}
				want[tight] = 0
				if got := left(t, p, acme); !slices.Equal(got, want) {
					t.Fatalf("after 2: %v left, want %v", got, want)
				}
				v := check(t, p, acme, 1)
				if v.Allowed || v.Refused != p.Rules()[tight].Name || v.RetryAfter <= 0 || v.Remaining != 0 || v.Unavailable || v.Degraded {
					t.Errorf("a third: %+v", v)
				}
				for i, r := range v.Rulings {
					if r.Allowed != (i != tight) || r.Remaining != want[i] || !r.Asked {
						t.Errorf("a third, rule %d: %+v, want %d left", i, r, want[i])
					}
				}
				if got := left(t, p, acme); !slices.Equal(got, want) {
					t.Errorf("after the refusal: %v left, want %v", got, want)
				}
				if v := check(t, p, acme, 6); v.Allowed || v.RetryAfter != buckets.Never {
					t.Errorf("6 of 5: %+v", v)
				}
				if c := p.Counts(); c.Allowed != 1 || c.Refused != 2 || c.Degraded != 0 {
					t.Errorf("counts %+v", c)
				}
			})
		}
	}
}

func TestScopesAndCost(t *testing.T) {
	elsewhere := Subject{Downstream: "video", Tenant: "acme"}
	for name, cfg := range backends(t) {
		t.Run(name, func(t *testing.T) {
			p := open(t, cfg, "fixed_window 10/366d", "fixed_window 10/366d per=downstream", "fixed_window 100/366d per=global cost=10")
			for _, step := range []struct {
				who  Subject
				left []int64
			}{
				{acme, []int64{9, 9, 90}},
				{other, []int64{9, 8, 80}}, // another tenant of the same downstream
				{elsewhere, []int64{9, 9, 70}},
				{Subject{Tenant: "mail/acme"}, []int64{9, 9, 60}}, // no name passes for another
				{Subject{Downstream: "mail/acme"}, []int64{9, 9, 50}},
				{acme, []int64{8, 7, 40}},
			} {
				v := check(t, p, step.who, 1)
				var got []int64
				for _, r := range v.Rulings {
					got = append(got, r.Remaining)
				}
				if !slices.Equal(got, step.left) || v.Remaining != step.left[2]/10 {
					t.Errorf("%v: %v left and %d in all, want %v", step.who, got, v.Remaining, step.left)
				}
			}
			names := []string{p.Rules()[0].Name, p.Rules()[1].Name, p.Rules()[2].Name}
			if want := []string{"tenant-fixed-window", "downstream-fixed-window", "global-fixed-window"}; !slices.Equal(names, want) {
				t.Errorf("names %v, want %v", names, want)
			}
		})
	}
}

// Whatever the order in which many ask for keys that overlap, what passes is exactly what
// the limits allow, and nobody waits for ever.
func TestManyAtOnce(t *testing.T) {
	for name, cfg := range backends(t) {
		t.Run(name, func(t *testing.T) {
			p := open(t, cfg, "fixed_window 300/366d per=global", "fixed_window 40/366d", "sliding_log 200/h per=downstream")
			var wg sync.WaitGroup
			var passed atomic.Int64
			for g := range 50 {
				wg.Go(func() {
					for i := range 20 {
						v := check(t, p, Subject{Downstream: fmt.Sprint(g % 2), Tenant: fmt.Sprint((g + i) % 5)}, 1)
						if v.Allowed {
							passed.Add(1)
						}
					}
				})
			}
			wg.Wait()
			// 10 keys × 40 = 400 by tenant, 2 × 200 = 400 by downstream, 300 in all; each key was
			// offered 100.
			if passed.Load() != 300 {
				t.Errorf("%d of 1000 passed, want exactly 300", passed.Load())
			}
			if c := p.Counts(); c.Allowed != 300 || c.Refused != 700 {
				t.Errorf("counts %+v", c)
			}
		})
	}
}

// commands counts what a client sends.
type commands struct{ n atomic.Int64 }

func (c *commands) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.n.Add(1); return next(ctx, cmd) }
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.n.Add(int64(len(cmds))); return next(ctx, cmds) }
}

func TestOneRoundTrip(t *testing.T) {
	client := redistest.Start(t).Client()
	p := open(t, Config{Redis: client, Deadline: time.Minute}, "fixed_window 2/366d", "sliding_log 2/h per=global", "token_bucket 1/h burst 2")
	check(t, p, acme, 1) // the server learns the script
	var sent commands
	client.AddHook(&sent)
	check(t, p, acme, 1)
	check(t, p, acme, 1) // refused
	if n := sent.n.Load(); n != 2 {
		t.Errorf("two checks of three rules sent %d commands, want 2", n)
	}
}

func TestSetFollowsAtOnce(t *testing.T) {
	for name, cfg := range backends(t) {
		t.Run(name, func(t *testing.T) {
			p := open(t, cfg, "token_bucket 1/h burst 5 name=a on_failure=local", "fixed_window 100/366d name=b")
			check(t, p, acme, 3)
			if err := p.Set("a", tokens(10)); err != nil {
				t.Fatal(err)
			}
			if got := left(t, p, acme); !slices.Equal(got, []int64{7, 97}) || p.Rules()[0].Params.Limit != 10 {
				t.Errorf("%v left of 10 and 100 after 3, want 7 and 97", got)
			}
			if err := p.Set("c", tokens(1)); !errors.Is(err, ErrRule) {
				t.Errorf("no such rule: %v", err)
			}
			if err := p.Set("a", tokens(0)); !errors.Is(err, buckets.ErrParameter) || p.Rules()[0].Params.Limit != 10 {
				t.Errorf("limit 0: %v", err)
			}
		})
	}
}

func TestWhatIsNoQuestion(t *testing.T) {
	for name, cfg := range backends(t) {
		p := open(t, cfg, "fixed_window 5/366d", "fixed_window 9/366d per=global")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			ctx  context.Context
			who  Subject
			n    int64
			want error
		}{
			{t.Context(), acme, -1, buckets.ErrCost},
			{t.Context(), Subject{Tenant: strings.Repeat("x", buckets.MaxKeyLen)}, 1, buckets.ErrKey},
			{gone, acme, 1, context.Canceled},
		} {
			if v, err := p.Check(tt.ctx, tt.who, tt.n); !errors.Is(err, tt.want) || !reflect.DeepEqual(v, Verdict{}) {
				t.Errorf("%s: %+v, %v; want %v", name, v, err, tt.want)
			}
		}
		if got := left(t, p, acme); !slices.Equal(got, []int64{5, 9}) {
			t.Errorf("%s: %v left", name, got)
		}
		if v := check(t, p, acme, 0); !v.Allowed || p.Counts() != (Counts{}) {
			t.Errorf("%s: a look: %+v, counts %+v", name, v, p.Counts())
		}
	}
}

func TestNewNamesTheBadField(t *testing.T) {
	good := []Rule{rule(t, "fixed_window 1/s")}
	late := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // which never connects
	defer late.Close()
	for says, cfg := range map[string]Config{
		"0 rules":               {},
		"rule 1":                {Rules: []Rule{{}}},
		"named a":               {Rules: []Rule{rule(t, "fixed_window 1/s name=a"), rule(t, "fixed_window 1/s name=a")}},
		"Nodes":                 {Rules: good, Nodes: maxNodes + 1},
		"Deadline":              {Rules: good, Deadline: time.Microsecond},
		"ContextTimeoutEnabled": {Rules: good, Redis: late},
	} {
		if p, err := New(cfg); err == nil || !strings.Contains(err.Error(), says) || p != nil {
			t.Errorf("%+v: %v; want an error that says %q", cfg, err, says)
		}
	}
	twice := open(t, Config{}, "fixed_window 1/s", "fixed_window 9/m", "fixed_window 1/s name=tenant-fixed-window-2")
	if n := twice.Rules()[1].Name; n != "tenant-fixed-window-3" {
		t.Errorf("the second without a name is %q", n)
	}
}
