package e2e

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/test/faultproxy"
	"github.com/jobshaper/jobshaper/shaper"
)

// observed is what an operator sees of a daemon: its log and its metrics.
type observed struct {
	t        *testing.T
	registry *prometheus.Registry

	mu    sync.Mutex
	lines []string
}

// Write implements io.Writer, for a slog handler, which writes a line at a time.
func (o *observed) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, string(bytes.TrimSpace(b)))
	return o.t.Output().Write(b)
}

// said counts the log lines that hold all of some parts.
func (o *observed) said(parts ...string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
lines:
	for _, line := range o.lines {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}

// metric is a counter's value.
func (o *observed) metric(name string) float64 {
	o.t.Helper()
	families, err := o.registry.Gather()
	if err != nil {
		o.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	o.t.Fatalf("there is no metric %s", name)
	return 0
}

// observe runs a daemon in the test's own process, and watches it.
func (r *rig) observe(role role) *observed {
	r.t.Helper()
	o := &observed{t: r.t, registry: prometheus.NewRegistry()}
	role.metrics = o.registry
	role.log = slog.New(slog.NewTextHandler(o, nil))
	r.daemon(role)
	return o
}

// TestBrokenNetwork takes the network between a daemon and Redis away for three seconds, in several
// ways. Nothing is lost, nothing starts outside its slot meanwhile, and soon after the network is
// back jobs go on at their rate.
func TestBrokenNetwork(t *testing.T) {
	notShort(t)
	t.Parallel()
	const outage, jobs = 3 * time.Second, 100
	// These are generous: docs/reliability.md has what is seen on an idle machine.
	const recovery = 20 * time.Second
	for _, tc := range []struct {
		name   string
		outage func(*testing.T, *faultproxy.Proxy)
	}{
		{"connections refused", func(t *testing.T, network *faultproxy.Proxy) {
			network.Refuse()
			time.Sleep(outage)
			if err := network.Accept(); err != nil {
				t.Fatal(err)
			}
		}},
		{"black hole", func(_ *testing.T, network *faultproxy.Proxy) {
			network.Stall()
			time.Sleep(outage)
			network.Flow()
		}},
		{"black hole, and what was sent is gone", func(_ *testing.T, network *faultproxy.Proxy) {
			network.Stall()
			time.Sleep(outage)
			network.Cut()
			network.Flow()
		}},
		{"half open", func(_ *testing.T, network *faultproxy.Proxy) { network.Sever() }},
		{"cut again and again", func(_ *testing.T, network *faultproxy.Proxy) {
			for range 30 {
				network.Cut()
				time.Sleep(outage / 30)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newServerRig(t)
			r.tenant("a", rate(20))
			r.patiently(shaper.DefaultLease)
			network, url := r.proxy()
			daemon := both
			daemon.Redis = url
			r.observe(daemon)
			r.offer("a", jobs, play{For: 20 * time.Millisecond})
			r.starts(10)
			tc.outage(t, network)
			healed := history.Now()
			h := r.await("a start after the network is back", func(h history.History) bool { return len(h.Since(healed).Of(history.Start)) > 0 })
			first := time.Duration(h.Since(healed).Of(history.Start)[0].At - healed)
			if first > recovery {
				t.Errorf("the first start came %v after the network, want it within %v", first, recovery)
			}
			h = r.drained()
			r.refuse(history.Starts(h, r.patient(20)), history.Accounts(h))
			r.counted("a", jobs)
			t.Logf("first start %v after the network was back, %d starts of %d jobs", first.Round(time.Millisecond), len(h.Of(history.Start)), jobs)
		})
	}
}

// TestRedisIsTooFar puts Redis 200 ms away, with a tolerance of 20 ms: no answer arrives before its
// slot is over. No job starts, since none could start in its slot, and none is charged; a log line
// and a metric say why. With the tolerance raised, all start.
func TestRedisIsTooFar(t *testing.T) {
	notShort(t)
	t.Parallel()
	const jobs, far = 20, 200 * time.Millisecond
	r := newServerRig(t)
	r.tenant("a", rate(20))
	network, url := r.proxy()
	network.Delay(far)
	daemon := both
	daemon.Redis = url
	o := r.observe(daemon)
	begun := time.Now()
	r.offer("a", jobs, play{})
	r.eventually("jobs go back", func() bool { return o.metric("shaper_too_late_total") >= 6 })
	missed, took := o.metric("shaper_missed_slots_total"), time.Since(begun)
	if n := len(r.history().Of(history.Start)); n != 0 {
		t.Errorf("%d starts, want none", n)
	}
	if lines := o.said("level=WARN", "tolerance too small for this Redis"); lines < 1 || lines > 1+int(took/(5*time.Second)) {
		t.Errorf("%d lines of the log tell of it within %v, want one every 5 s", lines, took)
	}
	if missed < 36 {
		t.Errorf("%v slots missed, want six for each job that went back", missed)
	}
	r.patiently(shaper.DefaultLease)
	raised := history.Now()
	h := r.drained()
	r.refuse(history.Starts(h, r.patient(20)), history.Accounts(h))
	r.charged(h, "a", 1)
	t.Logf("%v slots missed within %v; first start %v after the tolerance was raised", missed, took.Round(time.Millisecond),
		time.Duration(h.Of(history.Start)[0].At-raised).Round(time.Millisecond))
}

// TestScriptsAreForgotten flushes Redis' scripts again and again under load: nobody notices.
func TestScriptsAreForgotten(t *testing.T) {
	t.Parallel()
	const jobs, flushes = 60, 20
	r := newServerRig(t)
	r.tenant("a", rate(40))
	r.patiently(shaper.DefaultLease)
	daemon := r.observe(both)
	r.offer("a", jobs, play{For: 10 * time.Millisecond})
	for n := range flushes {
		r.starts(n * jobs / flushes)
		r.must(r.rdb.ScriptFlush(context.Background()).Err())
		// Two tenants share a pipeline, in which no client loads a script again.
		specs := []shaper.Spec{jobOf("b", n), jobOf("c", n)}
		for _, out := range r.client.OfferMany(context.Background(), specs) {
			if out.Err != nil || out.Result.Status != shaper.Accepted {
				t.Fatalf("after a flush: %+v %v", out.Result, out.Err)
			}
		}
	}
	r.await("all have ended", func(h history.History) bool { return len(h.Of(history.End)) >= jobs+2*flushes })
	h := r.drained()
	r.refuse(history.Starts(h.Tenant("a"), r.patient(40)), history.Accounts(h.Tenant("a")))
	if n := len(h.Of(history.Start)); n != jobs+2*flushes {
		t.Errorf("%d starts, want %d", n, jobs+2*flushes)
	}
	if n := daemon.said("NOSCRIPT"); n > 0 {
		t.Errorf("%d lines of the log tell of it, want none", n)
	}
}

// TestRedisForgetsEverything flushes Redis under load. What waited is gone, and an operator is
// told; the daemon goes on, has its policies set again before it starts anything, and serves what
// is offered from then on.
func TestRedisForgetsEverything(t *testing.T) {
	t.Parallel()
	const jobs, again = 40, 8
	ctx := context.Background()
	r := newServerRig(t)
	daemon := both
	daemon.policy, daemon.tenants = shaper.DownstreamPolicy{Tolerance: patientTolerance}, map[string]shaper.Policy{"a": rate(5)}
	o := r.observe(daemon)
	r.offer("a", jobs, play{For: 50 * time.Millisecond})
	r.offerOne(shaper.Spec{Tenant: "b"}, play{First: time.Hour}) // runs when it happens
	r.starts(4)
	r.await("the long job runs", func(h history.History) bool { return len(h.Tenant("b").Of(history.Start)) == 1 })
	if n := o.metric("shaper_store_forgot_total"); n != 0 {
		t.Errorf("told %v times that Redis forgot, and it did not", n)
	}
	r.must(r.rdb.FlushAll(ctx).Err())
	flushed := history.Now()
	r.offer("a", again, play{}) // before anybody has noticed
	r.await("what is offered from then on has ended", func(h history.History) bool { return len(history.Lost(h.Since(flushed))) == 0 })
	r.await("the job that ran is told", func(h history.History) bool { return len(h.Tenant("b").Of(history.End)) == 1 })
	h := r.history().Since(flushed)
	// A start that had its slot before is not one of theirs: Redis has forgotten that too.
	offered := distinct(h.Of(history.Accept))
	var fresh history.History
	for _, e := range h.Tenant("a") {
		if offered[e.ID] {
			fresh = append(fresh, e)
		}
	}
	r.refuse(history.Starts(fresh, r.patient(5)))
	if n := len(fresh.Of(history.Start)); n != again {
		t.Errorf("%d starts of what was offered from then on, want %d", n, again)
	}
	if n := o.metric("shaper_store_forgot_total"); n != 1 {
		t.Errorf("told %v times by the metric that Redis forgot, want once", n)
	}
	if n := o.said("level=ERROR", "Redis has lost its data"); n != 1 {
		t.Errorf("told by %d lines of the log, want one", n)
	}
	if end := h.Tenant("b").Of(history.End)[0]; end.Outcome != history.Back {
		t.Errorf("the job that ran ended as %s, want it to lose its lease", end.Outcome)
	}
	t.Logf("first start %v after the flush", time.Duration(fresh.Of(history.Start)[0].At-flushed).Round(time.Millisecond))
}
