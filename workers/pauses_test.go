package workers

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestPauseRecallsGrantedSlots: what holds a slot that has not come goes back when its tenant is
// paused, or the downstream, and starts after the pause. The first slot of a new Redis is seconds
// ahead here, so only a recall can be in time.
func TestPauseRecallsGrantedSlots(t *testing.T) {
	testenv.Long(t, "lasts several seconds of slots")
	for name, paused := range map[string]string{"tenant": "a", "downstream": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var starts atomic.Int64
			b := newBench(t, func(context.Context, *asynq.Task) error {
				starts.Add(1)
				return nil
			}, Config{})
			b.must(b.admin.SetDownstream(t.Context(), shaper.DownstreamPolicy{
				Lead: 3 * time.Second, Defaults: shaper.Policy{Rate: buckets.PerSecond(10)}}))
			b.start()
			id := b.offer("a", 1)
			until(t, "a slot is granted", func() bool { return b.find("a", id).State == shaper.StateRunning })
			b.must(b.admin.Pause(t.Context(), paused, 0))
			until(t, "the job is back", func() bool { return b.find("a", id).State == shaper.StateWaiting })
			if n := starts.Load(); n != 0 {
				t.Errorf("%d starts during the pause", n)
			}
			b.must(b.admin.Resume(t.Context(), paused))
			if job := b.wait("a", id); job.State != shaper.StateDone || job.Charged != 1 || job.Attempt != 1 {
				t.Errorf("%+v, want done, by one attempt, which is charged", job)
			}
			if info, err := b.admin.Tenant(t.Context(), "a"); err != nil || info.Counters.Started != 1 {
				t.Errorf("%d starts counted (%v), want the one that there was", info.Counters.Started, err)
			}
		})
	}
}

// TestPauseOvertakesAnAnswer: a slot that was asked for before a pause was heard of is recalled,
// even if its answer comes later; one that was asked for afterwards is not, since the gate knew of
// the pause.
func TestPauseOvertakesAnAnswer(t *testing.T) {
	var m pauses
	now := time.Now()
	m.note("a", now)
	recalled := func(tenant string, asked time.Time) bool {
		s := &start{grant: &queue.Grant{Ticket: queue.Ticket{Tenant: tenant}}, asked: asked}
		s.wait, s.recall = context.WithCancel(t.Context())
		defer s.recall()
		m.check(s)
		return s.wait.Err() != nil
	}
	if !recalled("a", now.Add(-time.Millisecond)) || recalled("a", now.Add(time.Millisecond)) || recalled("b", now.Add(-time.Millisecond)) {
		t.Error("want the start recalled that was asked for before the pause of its tenant, and no other")
	}
	m.note("", now)
	if !recalled("b", now.Add(-time.Millisecond)) {
		t.Error("want starts of all tenants recalled when the downstream is paused")
	}
	m.note("c", now.Add(2*pauseMemory))
	if len(m) != 1 {
		t.Errorf("%d pauses remembered, want only the last", len(m))
	}
}
