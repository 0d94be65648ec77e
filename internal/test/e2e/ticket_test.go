package e2e

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/history"
)

// TestTicketsMayBeDoubled puts every ticket that asynq holds into it again, under other ids and by
// the ways that a dashboard has, and once more when all is over. A ticket is a reminder: no job
// starts twice because of it, and each start owns a slot. Some tickets are gone before they are
// seen, so there are jobs until enough of them were.
func TestTicketsMayBeDoubled(t *testing.T) {
	t.Parallel()
	const enough, together = 40, 40
	r := newRig(t)
	r.tenant("a", rate(20))
	r.daemon(both)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	forger := newForger(r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			forger.doubleAll(ctx)
			time.Sleep(2 * time.Millisecond)
		}
	}()
	jobs := 0
	for begun := time.Now(); jobs == 0 || forger.forged.Load() < enough && time.Since(begun) < patience; jobs += together {
		r.offer("a", together, play{For: 30 * time.Millisecond})
		r.drained()
	}
	cancel()
	<-done
	forger.again()
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(20)), history.Accounts(h))
	if n := len(h.Of(history.Start)); n != jobs {
		t.Errorf("%d starts, want %d", n, jobs)
	}
	if n := forger.forged.Load(); n < enough {
		t.Errorf("%d tickets doubled, want at least %d", n, enough)
	}
}

// forger doubles tickets: it finds them where asynq keeps its tasks.
type forger struct {
	rig       *rig
	queue     string // that carries the downstream's tickets
	client    *asynq.Client
	inspector *asynq.Inspector
	seen      map[string][]byte // payloads of the tickets that were seen
	forged    atomic.Int64
}

func newForger(r *rig) *forger {
	return &forger{rig: r, queue: "shaper-" + r.name, client: asynq.NewClientFromRedisClient(r.rdb),
		inspector: asynq.NewInspectorFromRedisClient(r.rdb), seen: map[string][]byte{}}
}

// doubleAll doubles each ticket that it sees for the first time: one copy to be run at once, one to
// be archived and run by hand.
func (f *forger) doubleAll(ctx context.Context) {
	pending, _ := f.inspector.ListPendingTasks(f.queue)
	active, _ := f.inspector.ListActiveTasks(f.queue)
	for _, task := range append(pending, active...) {
		if f.seen[string(task.Payload)] == nil {
			f.seen[string(task.Payload)] = task.Payload
			f.put(task.Payload)
			f.put(task.Payload, asynq.ProcessIn(time.Hour))
		}
	}
	_, _ = f.inspector.RunAllScheduledTasks(f.queue)
	_, _ = f.inspector.RunAllArchivedTasks(f.queue)
	_, _ = f.inspector.RunAllRetryTasks(f.queue)
}

// again puts all tickets that were ever seen into asynq, and waits until they have been taken.
func (f *forger) again() {
	for _, payload := range f.seen {
		f.put(payload)
	}
	f.taken()
}

// taken waits until asynq has no ticket. If a reply came too late for asynq, it does not know that
// a ticket is done, and finds out two minutes later.
func (f *forger) taken() {
	f.rig.t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		info, err := f.inspector.GetQueueInfo(f.queue)
		if err == nil && info.Pending+info.Active == 0 {
			return
		}
		if time.Since(begun) > 4*patience {
			f.rig.t.Fatalf("asynq still has tickets after %v: %+v %v", 4*patience, info, err)
		}
	}
}

func (f *forger) put(payload []byte, opts ...asynq.Option) {
	id := "forged-" + strconv.FormatInt(f.forged.Add(1), 10)
	_, err := f.client.Enqueue(asynq.NewTask("shaper:ticket", payload), append(opts, asynq.TaskID(id), asynq.Queue(f.queue))...)
	if err != nil {
		f.rig.t.Errorf("double a ticket: %v", err)
	}
}
