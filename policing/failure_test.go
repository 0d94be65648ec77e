package policing

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/breaker"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// outages are the ways in which a Redis goes away, and comes back.
var outages = map[string]struct{ begin, end func(*redistest.Server) }{
	"killed": {(*redistest.Server).Kill, (*redistest.Server).Restart},
	"paused": {(*redistest.Server).Pause, (*redistest.Server).Continue},
}

// away asks until the policies decide.
func away(t *testing.T, p *Policer) {
	t.Helper()
	eventually(t, "Redis is found to be away", func() bool { return check(t, p, Subject{Tenant: "probe"}, 1).Degraded && p.Counts().Open })
}

// back asks until Redis decides again.
func back(t *testing.T, p *Policer) {
	t.Helper()
	eventually(t, "Redis is found to be back", func() bool { return !check(t, p, Subject{Tenant: "probe"}, 0).Degraded })
}

func TestFailurePolicies(t *testing.T) {
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			client := server.Client()
			with := func(rules ...string) *Policer {
				return open(t, Config{Redis: client, Nodes: 4, Prefix: rules[0][:9]}, rules...)
			}
			opened := with("token_bucket 1/h burst 8 on_failure=open", "fixed_window 1000/366d name=second")
			closed := with("sliding_counter 1000/366d on_failure=closed name=strict", "fixed_window 100/366d on_failure=local")
			local := with("fixed_window 40/366d on_failure=local", "sliding_log 1000/h name=open")
			all := []*Policer{opened, closed, local}
			for _, p := range all {
				back(t, p)
			}

			outage.begin(server)
			for _, p := range all {
				away(t, p)
			}
			for range 20 { // far more than 8
				v := check(t, opened, acme, 1)
				if !v.Allowed || !v.Degraded || v.Unavailable || v.Remaining != -1 || v.Rulings[0].Asked || v.RetryAfter != 0 {
					t.Fatalf("open: %+v", v)
				}
			}
			if c := opened.Counts(); c.Unasked < 20 || c.Unasked != c.Degraded {
				t.Errorf("open is to count what it let pass: %+v", c)
			}

			v := check(t, closed, acme, 1)
			if v.Allowed || !v.Degraded || !v.Unavailable || v.Refused != "strict" || v.RetryAfter <= 0 || v.RetryAfter > time.Second {
				t.Errorf("closed: %+v", v)
			}
			if c := closed.Counts(); c.Unavailable == 0 || c.Refused != 0 {
				t.Errorf("closed is unavailable, not refused: %+v", c)
			}

			passed := 0
			for range 20 {
				if v = check(t, local, acme, 1); v.Allowed {
					passed++
				}
			}
			if passed != 10 || !v.Degraded || v.Unavailable || v.Refused != "tenant-fixed-window" || v.RetryAfter <= 0 {
				t.Errorf("local: %d of 20 passed, want 40/4; then %+v", passed, v)
			}
			if v := check(t, local, other, 11); v.Allowed || !v.Unavailable {
				t.Errorf("local, more than a share: %+v, want unavailable", v)
			}
			if v := check(t, local, other, 41); v.Allowed || v.Unavailable || v.RetryAfter != buckets.Never {
				t.Errorf("local, more than the limit: %+v, want a refusal for ever", v)
			}

			outage.end(server)
			for _, p := range all {
				back(t, p)
			}
			eventually(t, "closed lets pass again", func() bool { return check(t, closed, acme, 1).Allowed })
		})
	}
}

// slowest returns the p99 of how long checks take, from the tenth on.
func slowest(t *testing.T, p *Policer, calls int, pause time.Duration) time.Duration {
	var took []time.Duration
	for i := range calls {
		start := time.Now()
		if v := check(t, p, acme, 1); !v.Degraded {
			t.Fatalf("call %d: %+v", i, v)
		}
		if i >= 9 {
			took = append(took, time.Since(start))
		}
		time.Sleep(pause)
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// With Redis away a check takes less than 100 ms, p99, from the tenth call on; and less than 2 s
// after Redis is back it is asked again. A busy machine may take longer, so it gets as many tries
// as it needs.
func TestOutageIsShort(t *testing.T) {
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			p := open(t, Config{Redis: server.Client()}, "fixed_window 1000000/366d", "token_bucket 1000/s per=global")
			back(t, p)
			var p99, recovery time.Duration
			for begun := time.Now(); time.Since(begun) < 2*testenv.Patience; {
				outage.begin(server)
				p99 = slowest(t, p, 300, 3*time.Millisecond)
				outage.end(server)
				ended := time.Now()
				back(t, p)
				recovery = time.Since(ended)
				t.Logf("p99 %v, recovery %v", p99, recovery)
				if p99 < 100*time.Millisecond && recovery < 2*time.Second {
					return
				}
			}
			t.Errorf("p99 %v, recovery %v; want less than 100ms and 2s", p99, recovery)
		})
	}
}

// Many callers at once wait for a dead Redis no longer than one does.
func TestOutageUnderLoad(t *testing.T) {
	server := redistest.Start(t)
	p := open(t, Config{Redis: server.Client()}, "fixed_window 1000000/366d")
	back(t, p)
	server.Pause()
	defer server.Continue()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				if v := check(t, p, acme, 1); !v.Degraded || !v.Allowed {
					t.Errorf("while paused: %+v", v)
				}
			}
		})
	}
	wg.Wait()
	if c := p.Counts(); c.Unasked != 1000 || c.Allowed != 1000 || !c.Open {
		t.Errorf("counts %+v, want 1000 let pass unasked", c)
	}
}

// A server that forgot the scripts is no failure.
func TestScriptFlush(t *testing.T) {
	client := redistest.Start(t).Client()
	p := open(t, Config{Redis: client, Deadline: time.Minute}, "fixed_window 3/366d on_failure=closed", "sliding_log 9/h on_failure=closed")
	for i := range 4 {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if v := check(t, p, acme, 1); v.Allowed != (i < 3) || v.Degraded || v.Unavailable {
			t.Errorf("call %d: %+v", i, v)
		}
	}
}

// A replica refuses writes: that is a failure of the store, and not a refusal. It can still say a
// refusal, which needs no write.
func TestReadOnlyReplica(t *testing.T) {
	primary := redistest.Start(t)
	client := primary.Client()
	cfg := Config{Redis: client, Deadline: time.Minute}
	rules := []string{"fixed_window 3/366d on_failure=closed name=strict", "token_bucket 1/h burst 9"}
	p := open(t, cfg, rules...)
	check(t, p, acme, 3)
	check(t, p, other, 1)

	host, port := "127.0.0.1", primary.Addr()[len("127.0.0.1:"):]
	replica := redistest.Start(t, redistest.Args("--replicaof", host, port)).Client()
	cfg.Redis = replica
	q := open(t, cfg, rules...)
	eventually(t, "the replica has it all", func() bool {
		v := check(t, q, acme, 0)
		return !v.Degraded && v.Rulings[0].Remaining == 0
	})
	if v := check(t, q, acme, 1); v.Allowed || v.Degraded || v.Unavailable || v.Refused != "strict" {
		t.Errorf("a refusal: %+v", v)
	}
	if v := check(t, q, other, 1); v.Allowed || !v.Degraded || !v.Unavailable {
		t.Errorf("what must be written: %+v, want unavailable", v)
	}
	// The same server becomes a primary, as after a failover.
	if err := replica.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if v := check(t, q, other, 1); !v.Allowed || v.Degraded {
		t.Errorf("after the promotion: %+v", v)
	}
}

// A key of another type breaks the checks of one tenant, and not those of others.
func TestForeignKey(t *testing.T) {
	client := redistest.Start(t).Client()
	p := open(t, Config{Redis: client, Deadline: time.Minute}, "fixed_window 3/366d on_failure=closed name=strict")
	for i := range 3 * breaker.After {
		tenant := Subject{Tenant: strconv.Itoa(i)}
		if i == 0 {
			check(t, p, tenant, 1)
			keys := client.Keys(t.Context(), "*").Val()
			client.Del(t.Context(), keys...)
			client.SAdd(t.Context(), keys[0], "not ours")
		}
		if v := check(t, p, Subject{Tenant: "0"}, 1); !v.Unavailable || v.Refused != "strict" {
			t.Errorf("the broken one: %+v", v)
		}
		if v := check(t, p, Subject{Tenant: "fine"}, 1); v.Degraded {
			t.Errorf("another: %+v", v)
		}
	}
	for range 3 * breaker.After { // however many of it come in a row
		check(t, p, Subject{Tenant: "0"}, 1)
	}
	if v := check(t, p, Subject{Tenant: "fine"}, 1); v.Degraded || p.Counts().Open {
		t.Errorf("another, after many of the broken one: %+v", v)
	}
}
