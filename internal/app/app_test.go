package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/app/top"
	"github.com/jobshaper/jobshaper/internal/config"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

const patience = testenv.Patience

// running is a daemon in a test.
type running struct {
	Running
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
}

// begin starts a daemon and returns once it runs. The test ends it.
func begin(t *testing.T, cfg Config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan Running, 1)
	cfg.Started = func(r Running) { started <- r }
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &running{t: t, cancel: cancel, ended: make(chan error, 1)}
	go func() { d.ended <- Run(ctx, cfg) }()
	select {
	case d.Running = <-started:
	case err := <-d.ended:
		t.Fatalf("did not start: %v", err)
	case <-time.After(patience):
		t.Fatal("did not start")
	}
	t.Cleanup(func() { // in case the test failed before
		cancel()
		http.DefaultClient.CloseIdleConnections()
	})
	return d
}

// end asks the daemon to stop and waits until it has.
func (d *running) end() {
	d.t.Helper()
	d.cancel()
	select {
	case err := <-d.ended:
		if err != nil {
			d.t.Errorf("stop: %v", err)
		}
	case <-time.After(patience):
		d.t.Fatal("did not stop")
	}
}

func (d *running) ask(method, path, body string) (status int, text string) {
	d.t.Helper()
	req, err := http.NewRequest(method, "http://"+d.Address+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// until asks again and again until it gets this status, and an answer with this text, which it
// returns.
func (d *running) until(path string, status int, text string) string {
	d.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if got, answer := d.ask("GET", path, ""); got == status && strings.Contains(answer, text) {
			return answer
		}
	}
	d.t.Fatalf("%s never answered %d with %q", path, status, text)
	return ""
}

func testConfig(h asynq.HandlerFunc) Config {
	return Config{Listen: "127.0.0.1:0", Roles: Roles{true, true, true}, Grace: patience, Version: "test",
		Downstreams: []config.Downstream{{Name: "d", Config: jobshaper.Config{Handler: h,
			Policy: shaper.DownstreamPolicy{Defaults: shaper.Policy{Rate: buckets.PerSecond(100)}}}}}}
}

const jobsPath = "/v1/downstreams/d/tenants/acme/jobs"

func TestWholeDaemonOnItsOwnStore(t *testing.T) {
	ran := make(chan string, 1)
	cfg := testConfig(func(_ context.Context, task *asynq.Task) error { ran <- string(task.Payload()); return nil })
	cfg.DataDir = t.TempDir()
	d := begin(t, cfg)
	if status, text := d.ask("POST", jobsPath, `{"type":"x","payload":"hello"}`); status != 202 {
		t.Fatalf("offer: %d %s", status, text)
	}
	select {
	case got := <-ran:
		if got != "hello" {
			t.Errorf("ran with %q", got)
		}
	case <-time.After(patience):
		t.Fatal("never ran")
	}
	d.until("/readyz", 200, "")
	text := d.until("/metrics", 200, `shaper_pool_ends_total{became="done",downstream="d"} 1`) // the handler's end is not yet the job's
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "shaper_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, want := range []string{
		`shaper_accepted_total{downstream="d",tenant="acme"} 1`, `shaper_level{downstream="d",tenant="acme"} 0`,
		`shaper_pools{downstream="d"} 1`, `shaper_places{downstream="d"} 10`, `shaper_store_up{downstream="d"} 1`,
		`shaper_slot_lateness_seconds_count{downstream="d"} 1`, `shaper_build_info{`, `shaper_oldest_seconds{`, `shaper_in_flight{`,
		`shaper_done_total{`, `shaper_failed_total{`, `shaper_dead_total{`, `shaper_store_round_trip_seconds_bucket{`,
		`shaper_tickets_waiting{downstream="d"} 0`, `shaper_tickets_stuck{downstream="d"} 0`, `shaper_foreign_servers{downstream="d"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	d.end()
}

// While running jobs end, the daemon says that it is not ready, and still takes jobs: they wait in
// the store.
func TestStopDrains(t *testing.T) {
	server := redistest.Start(t)
	started, release := make(chan struct{}, 10), make(chan struct{})
	cfg := testConfig(func(context.Context, *asynq.Task) error { started <- struct{}{}; <-release; return nil })
	cfg.Redis = server.URL()
	d := begin(t, cfg)
	d.ask("POST", jobsPath, `{"type":"x","id":"runs"}`)
	select {
	case <-started:
	case <-time.After(patience):
		t.Fatal("never ran")
	}
	d.cancel()
	d.until("/readyz", 503, "")
	if status, _ := d.ask("GET", "/healthz", ""); status != 200 {
		t.Errorf("healthz while draining: %d", status)
	}
	if status, text := d.ask("POST", jobsPath, `{"type":"x","id":"waits"}`); status != 202 {
		t.Errorf("offer while draining: %d %s", status, text)
	}
	close(release)
	d.end()
	client, err := shaper.NewClient(server.Client(), "d", shaper.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]shaper.State{"runs": shaper.StateDone, "waits": shaper.StateWaiting} {
		if j, err := client.Find(t.Context(), "acme", id); err != nil || j.State != want {
			t.Errorf("job %s is %s (%v), want %s", id, j.State, err, want)
		}
	}
}

// `shaper stats --top` shows what the API refuses and which tenants offer the most, until the
// daemon stops.
func TestHeavyHitters(t *testing.T) {
	testenv.Long(t, "makes thousands of tenants")
	server := redistest.Start(t)
	cfg := testConfig(func(context.Context, *asynq.Task) error { return nil })
	cfg.Redis = server.URL()
	rule, err := policing.ParseRule("fixed_window 2/d")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Downstreams[0].Policy.Admit = []policing.Rule{rule}
	d := begin(t, cfg)
	for _, want := range []int{202, 202, 429} {
		if status, text := d.ask("POST", jobsPath, `{"type":"x"}`); status != want {
			t.Fatalf("offer: %d %s, want %d", status, text, want)
		}
	}
	ctx := context.Background()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got, err := top.Read(ctx, server.Client(), "d")
		if err == nil && fmt.Sprint(got.Offers, got.Refusals) == "{3 [{acme 3}]} {1 [{acme 1}]}" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v, %v, want three offers and one refusal", got, err)
		}
	}
	d.end()
	if got, err := top.Read(ctx, server.Client(), "d"); err != nil || got.Processes != 0 {
		t.Errorf("after the stop: %v, %v", got, err)
	}
}

func TestRedisAway(t *testing.T) {
	server := redistest.Start(t)
	cfg := testConfig(func(context.Context, *asynq.Task) error { return nil })
	cfg.Redis, cfg.Grace = server.URL(), time.Millisecond
	d := begin(t, cfg)
	d.until("/readyz", 200, "")
	server.Kill()
	d.until("/readyz", 503, "")
	if status, text := d.ask("POST", jobsPath, `{"type":"x"}`); status != 503 {
		t.Errorf("offer: %d %s", status, text)
	}
	if _, text := d.ask("GET", "/metrics", ""); !strings.Contains(text, `shaper_store_up{downstream="d"} 0`) {
		t.Error("metrics do not tell that Redis is away")
	}
	server.Restart()
	d.until("/readyz", 200, "")
	d.end()
}

func TestWhatCannotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	url := redistest.Start(t).URL()
	for name, row := range map[string]struct {
		change func(*Config)
		want   error
	}{
		"redis away":        {func(c *Config) { c.Redis = "redis://127.0.0.1:1" }, shaper.ErrStore},
		"redis URL":         {func(c *Config) { c.Redis = "nonsense" }, shaper.ErrInvalid},
		"no token":          {func(c *Config) { c.Listen = "0.0.0.0:0" }, shaper.ErrInvalid},
		"downstream's name": {func(c *Config) { c.Downstreams[0].Name = "{}" }, shaper.ErrInvalid},
		"policy":            {func(c *Config) { c.Downstreams[0].Policy.Defaults.Depth = -1 }, shaper.ErrInvalid},
		"no handler":        {func(c *Config) { c.Downstreams[0].Handler = nil }, shaper.ErrInvalid},
		"port taken":        {func(c *Config) { c.Listen = taken.Addr().String() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(func(context.Context, *asynq.Task) error { return nil })
			cfg.Redis, cfg.Log = url, slog.New(slog.DiscardHandler)
			row.change(&cfg)
			err := Run(t.Context(), cfg)
			if err == nil || row.want != nil && !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
		})
	}
}

func TestRolesRoundTrip(t *testing.T) {
	for _, list := range []string{"scheduler", "worker,api", "scheduler,worker,api"} {
		if r, err := ParseRoles(list); err != nil || r.String() != list {
			t.Errorf("%s: %v, %v", list, r, err)
		}
	}
}

// After Redis has lost all that it had, the configuration is applied again before anything starts.
func TestPoliciesOutliveTheStore(t *testing.T) {
	server := redistest.Start(t)
	slots := make(chan time.Time, 10)
	cfg := testConfig(func(ctx context.Context, _ *asynq.Task) error {
		job, _ := workers.JobFrom(ctx)
		slots <- job.Slot
		return nil
	})
	cfg.Redis = server.URL()
	// A rate other than the default, and a tolerance for busy machines.
	cfg.Downstreams[0].Policy = shaper.DownstreamPolicy{Tolerance: time.Second, Defaults: shaper.Policy{Rate: buckets.PerSecond(5)}}
	d := begin(t, cfg)
	d.until("/readyz", 200, "")
	if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	const jobs = 4
	for range jobs {
		if status, text := d.ask("POST", jobsPath, `{"type":"x"}`); status != 202 {
			t.Fatalf("offer: %d %s", status, text)
		}
	}
	var last time.Time
	for n := range jobs {
		select {
		case slot := <-slots:
			if gap := slot.Sub(last); gap < 200*time.Millisecond {
				t.Errorf("slot %d came %v after the one before, want at least 200ms", n, gap)
			}
			last = slot
		case <-time.After(patience):
			t.Fatalf("%d jobs ran, want %d", n, jobs)
		}
	}
	if _, text := d.ask("GET", "/metrics", ""); !strings.Contains(text, `shaper_store_forgot_total{downstream="d"} 1`) {
		t.Error("the metrics do not tell that Redis forgot")
	}
	d.end()
}

// said is a log that calls a function for each line.
type said func(line string)

func (f said) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}

// A daemon that meets the state of a newer version, when it starts or later, says so and waits, as
// for a Redis that is away: producers are refused with words, and nothing is lost.
func TestWaitsWhileTheStateIsNewer(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	version := func(v string) {
		if err := rdb.HSet(context.WithoutCancel(t.Context()), "shaper:{d}:d", "schema", v).Err(); err != nil {
			t.Error(err)
		}
	}
	ran, waits, fails := make(chan string, 10), make(chan string, 10), make(chan string, 10)
	cfg := testConfig(func(_ context.Context, task *asynq.Task) error { ran <- string(task.Payload()); return nil })
	cfg.Redis = server.URL()
	cfg.Log = slog.New(slog.NewTextHandler(said(func(line string) {
		switch {
		case strings.Contains(line, "waits until it can"):
			waits <- line
			version("1.0")
		case strings.Contains(line, "release failed"):
			fails <- line
		}
	}), nil))
	words := `downstream d was written by a Jobshaper of schema \"2.3\", and this one reads schema 1: upgrade it`
	hear := func(lines chan string) {
		t.Helper()
		select {
		case line := <-lines:
			if !strings.Contains(strings.ReplaceAll(line, `\\`, `\`), words) {
				t.Errorf("said %s", line)
			}
		case <-time.After(patience):
			t.Fatal("said nothing")
		}
	}
	version("2.3")
	d := begin(t, cfg)
	hear(waits)
	version("2.3")
	hear(fails)
	if status, text := d.ask("POST", jobsPath, `{"type":"x"}`); status != 503 || !strings.Contains(text, words) {
		t.Errorf("offer: %d %s", status, text)
	}
	version("1.0")
	for _, payload := range []string{"one", "two"} {
		if status, text := d.ask("POST", jobsPath, `{"type":"x","payload":"`+payload+`"}`); status != 202 {
			t.Fatalf("offer: %d %s", status, text)
		}
		select {
		case got := <-ran:
			if got != payload {
				t.Errorf("ran with %q, want %q", got, payload)
			}
		case <-time.After(patience):
			t.Fatal("never ran")
		}
	}
	if len(waits)+len(fails) > 0 {
		t.Error("said it more than once")
	}
	d.end()
}
