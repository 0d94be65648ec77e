package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

// console is a shell of a test, with a Redis of its own.
type console struct {
	t      *testing.T
	server *redistest.Server
	url    string
}

func newConsole(t *testing.T) *console {
	server := redistest.Start(t)
	return &console{t, server, server.URL()}
}

// run runs a command of ours to its end.
func (c *console) run(words ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	var out, err bytes.Buffer
	code = Run(c.t.Context(), append([]string{"shaper"}, words...), strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// says fails the test unless a command succeeds and prints each of the texts. It returns what was
// printed.
func (c *console) says(command string, texts ...string) string {
	c.t.Helper()
	code, out, stderr := c.run(append(strings.Fields(command), "--redis", c.url)...)
	if code != 0 {
		c.t.Errorf("%s: exit code %d, %s", command, code, stderr)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			c.t.Errorf("%s: printed\n%s\nwant %q in it", command, out, text)
		}
	}
	return out
}

// fails fails the test unless a command ends with the code and an error that holds each of the
// texts, and prints nothing else.
func (c *console) fails(code int, command string, texts ...string) {
	c.t.Helper()
	got, out, stderr := c.run(append(strings.Fields(command), "--redis", c.url)...)
	if got != code || out != "" {
		c.t.Errorf("%s: exit code %d, printed %q; want %d, and nothing", command, got, out, code)
	}
	for _, text := range texts {
		if !strings.Contains(stderr, text) {
			c.t.Errorf("%s: said %q, want %q in it", command, stderr, text)
		}
	}
}

// daemon runs `shaper run` until the test ends, or until the function that it returns is called,
// which waits for it and returns what it logged.
func (c *console) daemon(words ...string) (stop func() string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var log bytes.Buffer
	var code int
	var done sync.WaitGroup
	done.Go(func() {
		code = Run(ctx, append([]string{"shaper", "run", "--redis", c.url}, words...), strings.NewReader(""), &bytes.Buffer{}, &log)
	})
	stop = sync.OnceValue(func() string {
		cancel()
		done.Wait()
		if code != 0 {
			c.t.Errorf("the daemon ended with code %d:\n%s", code, &log)
		}
		return log.String()
	})
	c.t.Cleanup(func() { stop() })
	return stop
}

// offer offers a job whose payload is JSON.
func (c *console) offer(tenant, id, payload string) {
	c.t.Helper()
	client, err := shaper.NewClient(c.server.Client(), shaper.DefaultName, shaper.ClientConfig{})
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := client.Offer(c.t.Context(), shaper.Spec{Tenant: tenant, ID: id, Type: "t", Payload: []byte(payload), Retention: time.Hour})
	if err != nil || r.Status != shaper.Accepted {
		c.t.Fatalf("%+v, %v; want accepted", r, err)
	}
}

// until runs a command with --json until the condition holds for one of the objects that it prints.
func (c *console) until(command string, condition func(map[string]any) bool) {
	c.t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		_, out, stderr := c.run(append(strings.Fields(command), "--json", "--redis", c.url)...)
		for line := range strings.Lines(out) {
			var v map[string]any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				c.t.Fatalf("%s --json: %q: %v", command, line, err)
			}
			if condition(v) {
				return
			}
		}
		if time.Since(begun) > testenv.Patience {
			c.t.Fatalf("%s: still %s%s", command, out, stderr)
		}
	}
}

func is(field string, value any) func(map[string]any) bool {
	return func(v map[string]any) bool { return v[field] == value }
}

// TestDeadJobComesBack follows a job that fails for good, through an operator's eyes.
func TestDeadJobComesBack(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	flag := filepath.Join(t.TempDir(), "mended")
	stop := c.daemon("--rate", "50/s", "--exec", "ls {payload.file}")
	c.says("tenants set acme --max-attempts 1")
	c.offer("acme", "j1", `{"file":"`+flag+`"}`)
	c.until("jobs show j1", is("state", "dead"))
	c.says("dead ls --tenant acme", "j1", "exit")
	c.says("jobs ls --state dead", "j1")
	c.says("stats", "1 dead")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.says("dead requeue --tenant acme", "1 job of tenant acme brought back")
	c.until("jobs show j1", is("state", "done"))
	c.says("jobs show j1", "done", flag)
	c.says("dead ls", "no dead jobs")
	c.fails(1, "jobs requeue j1", "only dead jobs")
	c.fails(1, "jobs cancel j1", "too late")
	if log := stop(); !strings.Contains(log, "stopped in good order") {
		t.Errorf("the daemon said\n%s", log)
	}
}

// TestTenantsThroughTheirLife sets, pauses, purges and forgets a tenant.
func TestTenantsThroughTheirLife(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.says("tenants set acme --rate 7/s --depth 3 --on-full drop-oldest")
	c.until("tenants show acme", func(v map[string]any) bool { return v["tenant"] == "acme" })
	c.says("tenants show acme", "7/s", "drop-oldest")
	c.says("tenants pause acme --for 1h")
	c.offer("acme", "waits", "{}")
	c.says("tenants ls", "acme", "1/3", "paused for")
	c.says("jobs show waits", "waiting, position 1")
	c.says("jobs cancel waits", "is cancelled")
	c.offer("acme", "waits-too", "{}")
	c.fails(65, "tenants rm acme", "purge")
	c.says("tenants purge acme", "1 job")
	c.says("tenants resume acme")
	c.says("tenants rm acme")
	c.says("stats", "0 known")
}

// TestTop looks twice at a downstream with a backlog.
func TestTop(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.says("tenants set acme --rate 7/s --depth 30")
	c.offer("acme", "one", "{}")
	out := c.says("top --looks 2 --interval 10ms", "acme", "7/s", "1/30", "starts a second", "no")
	if n := strings.Count(out, "STARTS/S"); n != 2 || strings.Contains(out, "\x1b") {
		t.Errorf("printed\n%s\nwant two looks, and no escapes in a pipe", out)
	}
	c.until("top --looks 1", is("waiting", 1.0))
	c.fails(64, "top --looks 0", "looks", "0")
}

// TestMistakes: each mistake is told with what would be right, and changes nothing.
func TestMistakes(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for _, m := range []struct {
		code    int
		command string
		texts   []string
	}{
		{64, "tenants set acme --rate 0/s", []string{"rate", "0/s", "pause"}},
		{64, "tenants set acme --rate fast", []string{"rate", "fast", "10/s"}},
		{64, "tenants set acme --depth -1", []string{"depth", "-1"}},
		{65, "tenants set a/b --rate 1/s", []string{"tenant", "a/b"}},
		{64, "tenants set", []string{"TENANT"}},
		{65, "stats --downstream {x}", []string{"downstream", "{x}"}},
		{64, "jobs ls --limit 0", []string{"limit"}},
		{65, "jobs ls --state bogus", []string{"state", "bogus", "waiting"}},
		{65, "jobs show nothing", []string{"default", "never seen"}},
		{64, "frobnicate", []string{"frobnicate"}},
		{64, "top --interval 0s", []string{"interval", "0s"}},
	} {
		c.fails(m.code, m.command, m.texts...)
	}
	if keys := c.server.Client().Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("mistakes left %v", keys)
	}
	code, _, stderr := c.run("stats", "--redis", "redis://127.0.0.1:1/0")
	if code != 69 || !strings.Contains(stderr, "127.0.0.1:1") {
		t.Errorf("a Redis that is away: exit code %d, %q; want 69, and its address", code, stderr)
	}
}

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	path := filepath.Join(t.TempDir(), "shaper.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("downstreams:\n  d:\n    target: { exec: [cat] }\n    defaults: { rate: 10/s }\n")
	if code, _, stderr := c.run("config", "check", path); code != 0 {
		t.Errorf("a good file: exit code %d, %s", code, stderr)
	}
	write("downstreams:\n  d:\n    target: { exec: [cat] }\n    defaults: { rat: 10/s }\n")
	code, _, stderr := c.run("config", "check", path)
	if code != 1 || !strings.Contains(stderr, "rat") || !strings.Contains(stderr, "4") {
		t.Errorf("an unknown key: exit code %d, %q; want 1, the key and line 4", code, stderr)
	}
}
