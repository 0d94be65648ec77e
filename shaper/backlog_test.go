package shaper

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// backlogged is a carrier that tells what the test lets it tell, once each.
type backlogged struct {
	*carrier
	tells chan Backlog
}

func (b *backlogged) Backlog(ctx context.Context) (l Backlog, _ error) {
	select {
	case l = <-b.tells:
	case <-ctx.Done():
	}
	return l, ctx.Err()
}

// logText keeps what is written to a log.
type logText struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// A scheduler whose tickets do not reach workers says so, once, and releases no more until they do.
// Strangers that take some are told of too, and hinder nothing.
func TestSchedulerMindsItsBacklog(t *testing.T) {
	w := on(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.pool("p", 100)
	c := &backlogged{newCarrier(0), make(chan Backlog)}
	var log logText
	told := make(chan Backlog, 10)
	s, err := NewScheduler(w.rdb, w.q.Downstream, c, SchedulerConfig{Poll: 10 * time.Millisecond, TicketTTL: time.Hour,
		Logger: slog.New(slog.NewTextHandler(&log, nil)), OnBacklog: func(b Backlog) { told <- b }})
	w.must(err)
	w.must(s.Start(t.Context()))
	defer s.Stop()
	tell := func(b Backlog) {
		t.Helper()
		for range 2 { // when it asks again it has done what it does
			select {
			case c.tells <- b:
			case <-withTimeout(t).Done():
				t.Fatal("it does not ask")
			}
		}
		if got := <-told; got.Why() != b.Why() || len(got.Strangers) != len(b.Strangers) {
			t.Errorf("told of %+v, want %+v", got, b)
		}
		<-told
	}
	for i, stuck := range []Backlog{{Stuck: "somebody sat on it"}, {Tickets: 2000}} {
		id := fmt.Sprint("j", i)
		tell(stuck)
		w.offer(Spec{Tenant: "a", ID: id})
		tell(stuck) // some releases later
		if n := len(c.tickets); n > 0 {
			t.Errorf("%d tickets came although %s", n, stuck.Why())
		}
		if n := log.count(`why="` + stuck.Why() + `"`); n != 1 {
			t.Errorf("%d lines say that %s, want one", n, stuck.Why())
		}
		tell(Backlog{Tickets: 1999})
		if k := c.next(t); k.ID != id {
			t.Errorf("%v came, want %s", k, id)
		}
		if n := log.count("tickets reach workers again"); n != i+1 {
			t.Errorf("%d lines say that all is well, want %d", n, i+1)
		}
	}
	tell(Backlog{Strangers: []string{"host:1", "host:2"}})
	w.offer(Spec{Tenant: "a", ID: "j2"})
	if k := c.next(t); k.ID != "j2" {
		t.Errorf("%v came, want j2", k)
	}
	tell(Backlog{})
	if n := log.count(`servers="host:1, host:2"`); n != 1 || log.count("nobody else") != 1 {
		t.Errorf("%d lines name the strangers, want one, and one that they are gone:\n%s", n, log.text.String())
	}
}
