package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

// The doctor reports a job that is in no book, mends it when asked to, and then finds nothing more.
func TestDoctorMendsTheBooks(t *testing.T) {
	c := newConsole(t)
	c.says("doctor", "fit to keep jobs") // there is no downstream yet
	if code, _, stderr := c.run("doctor", "--downstream", "transcode", "--redis", c.url); code != 65 || !strings.Contains(stderr, "this Redis holds nothing of it") {
		t.Errorf("of a downstream that is not there: exit code %d, %s", code, stderr)
	}
	client, err := shaper.NewClient(c.server.Client(), "d", shaper.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		if r, err := client.Offer(t.Context(), shaper.Spec{Tenant: "acme", ID: id, Type: "x"}); err != nil || r.Status != shaper.Accepted {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	c.says("tenants set acme --downstream d --depth 500 --max-ends 2000")
	c.says("doctor --downstream d", "fit to keep jobs",
		"note: downstream d: its policies let 500 jobs wait, 0.1 MB and their payloads (32.9 MB where each has 64 KiB), and 2000 ended jobs be known, 0.2 MB; tenants so far: 1")
	if err := c.server.Client().LRem(t.Context(), "shaper:{d}:w:acme", 1, "one").Err(); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := c.run("doctor", "--downstream", "d", "--redis", c.url); code != 1 ||
		!strings.Contains(out, "books: downstream d: 1 × in no bucket, and would never have started (acme one): shaper doctor --repair --downstream d") ||
		!strings.Contains(out, "1 book fault") {
		t.Errorf("exit code %d, printed\n%s", code, out)
	}
	c.says("doctor --downstream d --repair --json", `"severity":"mended","downstream":"d","kind":"waiting","count":1,"tenant":"acme","of":"one"`,
		`"books":0,"mended":1`)
	c.says("doctor --downstream d --repair --json", `"books":0,"mended":0`)
	c.says("jobs ls --downstream d --tenant acme", "one", "two")
}

// The doctor says why tickets do not reach workers: asynq's queue is paused, too many wait in it,
// or somebody else takes them.
func TestDoctorLooksAtTickets(t *testing.T) {
	c := newConsole(t)
	rdb := c.server.Client()
	client, err := shaper.NewClient(rdb, "d", shaper.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Offer(t.Context(), shaper.Spec{Tenant: "acme", ID: "one", Type: "x"}); err != nil {
		t.Fatal(err)
	}
	c.says("doctor --downstream d --json", `"tickets":0`)
	finds := func(args string, parts ...string) {
		t.Helper()
		code, out, _ := c.run(append(strings.Fields(args), "--redis", c.url)...)
		if code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%s does not say %q:\n%s", args, part, out)
			}
		}
	}
	if err := rdb.Set(t.Context(), "asynq:{shaper-d}:paused", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	finds("doctor --downstream d", "tickets: downstream d: asynq queue shaper-d is paused", "asynq queue resume shaper-d", "1 ticket fault")
	if err := rdb.Del(t.Context(), "asynq:{shaper-d}:paused").Err(); err != nil {
		t.Fatal(err)
	}
	many := make([]any, 2000)
	for i := range many {
		many[i] = i
	}
	if err := rdb.LPush(t.Context(), "asynq:{shaper-d}:pending", many...).Err(); err != nil {
		t.Fatal(err)
	}
	finds("doctor --downstream d --json", `{"severity":"tickets","downstream":"d","text":"workers take too few: 2000 tickets wait"`, `"tickets":1`)
	if err := rdb.Del(t.Context(), "asynq:{shaper-d}:pending").Err(); err != nil {
		t.Fatal(err)
	}
	stranger := asynq.NewServerFromRedisClient(c.server.Client(), asynq.Config{Queues: map[string]int{"shaper-d": 1}, LogLevel: asynq.FatalLevel})
	if err := stranger.Start(asynq.NewServeMux()); err != nil {
		t.Fatal(err)
	}
	defer stranger.Shutdown()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	for begun, n := time.Now(), 0; n == 0; { // asynq tells of a server a little after its start
		l, err := inspector.Servers()
		if n = len(l); err != nil || time.Since(begun) > testenv.Patience {
			t.Fatalf("asynq knows no server: %v", err)
		}
	}
	finds("doctor --downstream d", "asynq server", "takes its tickets, and is no pool of it: stop it, or have it serve other asynq queues")
}
