package shaper

import (
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// A Listener hears that something may leave, that tickets are on their way, and that a running job
// was cancelled.
func TestSignalsAreHeard(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	heard := make(chan queue.Signal, 100)
	l := queue.NewListener(w.q, func(s queue.Signal) { heard <- s })
	defer l.Close()
	hear := func(want queue.Signal) {
		t.Helper()
		for {
			select {
			case got := <-heard:
				if got == want {
					return
				}
			case <-withTimeout(t).Done():
				t.Fatalf("%+v was not heard", want)
			}
		}
	}
	quiet := func() {
		t.Helper()
		time.Sleep(20 * time.Millisecond)
		if len(heard) > 0 {
			t.Errorf("heard %+v, for nothing", <-heard)
		}
	}
	hear(queue.Signal{Kind: 'w'}) // once it listens: a signal may have been missed, so look around
	w.offers("a", 1)
	hear(queue.Signal{Kind: 'w'})
	w.offers("a", 1) // known already
	w.offer(Spec{Tenant: "a", ID: "behind"})
	quiet()
	w.pool("p", 1)
	hear(queue.Signal{Kind: 'w'})
	tickets, _, _ := w.release(1)
	hear(queue.Signal{Kind: 't'})
	w.pass(second)
	w.release(1) // there is no place: the call that frees one must say so
	w.must(w.gate.GiveBack(t.Context(), tickets[0]))
	hear(queue.Signal{Kind: 'w'})
	g := w.start()
	if _, err := w.client.Cancel(t.Context(), "a", g.ID); err != nil {
		t.Fatal(err)
	}
	hear(queue.Signal{Kind: 'c', Tenant: "a", ID: g.ID})
	for len(heard) > 0 {
		<-heard
	}
	w.pass(second)
	w.release(1)
	w.finish(g, queue.Finish{Ending: queue.EndOK})
	hear(queue.Signal{Kind: 'w'})
	w.must(w.admin.Resume(t.Context(), "a"))
	hear(queue.Signal{Kind: 'w'})
	w.must(w.admin.Pause(t.Context(), "a", time.Minute))
	hear(queue.Signal{Kind: 'p', Tenant: "a"})
	w.must(w.admin.Pause(t.Context(), "", time.Minute))
	hear(queue.Signal{Kind: 'p'})
}

func TestListenerClosesTwice(t *testing.T) {
	l := queue.NewListener(queue.Open(redistest.Open(t), "d"), func(queue.Signal) {})
	l.Close()
	l.Close()
}
