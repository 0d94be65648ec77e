package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/crashpoint"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestCrashPoints kills a process at every instruction that matters: before and after each call of
// a script, each call of asynq, and the handler; the first time that it gets there, and, once
// started again, the third time. Whatever it left behind, all accepted jobs run to their end, in
// slots of their own, and again only where the process died in between.
//
// It keeps all cores busy, so it runs by itself: other tests judge to the millisecond.
func TestCrashPoints(t *testing.T) {
	notShort(t)
	program := lean.built(t)
	abreast(t, 8, crashpoint.Points(), func(t *testing.T, point string) {
		call, _, _ := strings.Cut(point, ".")
		if _, ok := operations[call]; ok {
			crashOperator(t, program, call, point)
		} else {
			crashDaemon(t, program, point)
		}
	})
}

// abreast runs a subtest for each name, some of them at a time. They wait most of their time, so
// there may be more than there are cores, and than t.Parallel allows.
func abreast(t *testing.T, most int, names []string, test func(*testing.T, string)) {
	places := make(chan struct{}, most)
	var running sync.WaitGroup
	for _, name := range names {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			t.Run(name, func(t *testing.T) { test(t, name) })
		})
	}
	running.Wait()
}

// hits says at which of its hits each point crashes.
var hits = []int{1, 3}

// crashDaemon has a daemon crash under load, twice, and another one finish the work.
func crashDaemon(t *testing.T, program, point string) {
	const slow, fast, slowJobs, fastJobs = 20, 400, 16, 60
	r := newServerRig(t)
	r.tenant("a", rate(slow)) // each job by a ticket of its own
	r.tenant("b", rate(fast)) // one job after the other without a ticket
	r.patiently(6 * time.Second)
	daemon := role{Scheduler: true, TicketTTL: time.Second, Worker: true, program: program}
	r.offer("a", slowJobs, play{For: 30 * time.Millisecond})
	r.offer("b", fastJobs, play{For: 2 * time.Millisecond})
	offered := int64(slowJobs)
	settled := map[string]int64{} // jobs whose end had been recorded when the process died, and when that was
	for _, n := range hits {
		victim := daemon
		victim.crash = fmt.Sprintf("%s:%d", point, n)
		p := r.launch(victim)
		p.crashes(point, func() {
			r.offer("a", 1, play{For: 30 * time.Millisecond})
			offered++
		})
		r.settle(settled)
	}
	r.start(daemon)
	h := r.drained()
	r.refuse(history.Starts(h.Tenant("a"), r.patient(slow)), history.Starts(h.Tenant("b"), r.patient(fast)), history.Accounts(h))
	for _, e := range h.Of(history.Start) {
		if at, ok := settled[e.Tenant+" "+e.ID]; ok && e.At > at {
			t.Errorf("job %s started again after its end had been recorded", e.ID)
		}
	}
	r.counted("a", offered)
	r.counted("b", fastJobs)
	t.Logf("%d starts of %d jobs", len(h.Of(history.Start)), offered+fastJobs)
}

// patiently makes room for a machine on which dozens of processes start and die at the same time:
// with the default tolerance their jobs would go back again and again, since a round trip takes
// longer. Slots are as exact as ever.
func (r *rig) patiently(lease time.Duration) {
	r.t.Helper()
	r.downstream(shaper.DownstreamPolicy{Tolerance: patientTolerance, Lease: lease, MaxCrashes: 100})
}

const patientTolerance = time.Second

// patient is the rule for n starts a second under patiently.
func (r *rig) patient(n int64) history.Rule {
	rule := perSecond(n)
	rule.Tolerance = patientTolerance
	rule.Slack += 2 * r.weather.longest()
	return rule
}

// settle adds the jobs whose end has been recorded by now.
func (r *rig) settle(into map[string]int64) {
	r.t.Helper()
	now := history.Now()
	for _, e := range r.history().Of(history.End) {
		job, err := r.client.Find(context.Background(), e.Tenant, e.ID)
		r.must(err)
		if _, known := into[e.Tenant+" "+e.ID]; !known && job.State.Ended() {
			into[e.Tenant+" "+e.ID] = now
		}
	}
}

// counted fails the test unless that many jobs of a tenant were accepted, and the end of each was
// recorded once.
func (r *rig) counted(tenant string, jobs int64) {
	r.t.Helper()
	info, err := r.admin.Tenant(context.Background(), tenant)
	r.must(err)
	if c := info.Counters; c.Accepted != jobs || c.Done != jobs {
		r.t.Errorf("tenant %s: %d jobs accepted and %d done, want %d", tenant, c.Accepted, c.Done, jobs)
	}
}

// crashOperator has an operator or a producer crash, twice, while a daemon works; then all is done
// again, by one that survives.
func crashOperator(t *testing.T, program, call, point string) {
	const jobs = 15
	r := newServerRig(t)
	r.tenant("a", rate(20))
	r.tenant("b", rate(20))
	r.patiently(shaper.DefaultLease)
	r.daemon(both)
	r.bury()
	r.offer("a", jobs, play{For: 20 * time.Millisecond})
	for _, n := range hits {
		p := r.launch(role{Operate: call, program: program, crash: fmt.Sprintf("%s:%d", point, n)})
		p.crashes(point, func() {})
	}
	o, err := newOperator(r.placed(role{}), redisurl.Config{})
	r.must(err)
	defer o.close()
	r.must(o.run(context.Background(), call))
	r.check(o, call)
	h := r.drained()
	r.refuse(history.Starts(h.Tenant("a"), r.patient(20)), history.Starts(h.Tenant("b"), r.patient(20)), history.Accounts(h))
	for _, tenant := range []string{"a", "b"} {
		r.counted(tenant, int64(len(distinct(h.Of(history.Accept).Tenant(tenant)))))
	}
}

// distinct returns the ids of jobs.
func distinct(h history.History) map[string]bool {
	ids := map[string]bool{}
	for _, e := range h {
		ids[e.ID] = true
	}
	return ids
}

// crashes waits until the process has died at a point, by its own hand. Meanwhile, four times a
// second, feed gives it more to do: it may be done with all before it has come to the point so often.
func (p *process) crashes(point string, feed func()) {
	p.rig.t.Helper()
	stuck := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
	defer stuck.Stop()
	died := make(chan error, 1)
	go func() { died <- p.cmd.Wait() }()
	more := time.NewTicker(250 * time.Millisecond)
	defer more.Stop()
	var err error
	for !p.ended {
		select {
		case <-more.C:
			feed()
		case err = <-died:
			p.ended = true
		}
	}
	p.cut()
	said, readErr := os.ReadFile(p.stderr)
	p.rig.must(readErr)
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != syscall.SIGKILL || !strings.Contains(string(said), "crash point "+point+"\n") {
		p.rig.t.Fatalf("process %d ended by %v, want it to crash at %s; it said:\n%s", p.pid(), err, point, tail(said, 4<<10))
	}
}
