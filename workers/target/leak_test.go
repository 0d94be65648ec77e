package target

import (
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// longLead leaves a start ready for most of half a second before its slot.
const longLead = 400 * time.Millisecond

// A start that is called off leaves its connection as it was: the server has seen nothing, and the
// next request goes over it.
func TestHTTPCalledOff(t *testing.T) {
	testenv.Long(t, "takes more than 3 s")
	for how, callOff := range callOffs {
		t.Run(how, func(t *testing.T) {
			noLeaks(t)
			var open atomic.Int64
			s := newSink(t, false, true, func(_ net.Conn, state http.ConnState) {
				switch state {
				case http.StateNew:
					open.Add(1)
				case http.StateClosed:
					open.Add(-1)
				}
			})
			p := newPool(t, newHTTPTest(t, HTTPConfig{URL: s.URL}), 2, longLead)
			ids := p.offer(2)
			p.done(ids[0])
			p.granted()
			p.granted() // the second one waits for its slot now
			callOff(p, ids[1])
			eventuallyTrue(t, "the start is over", func() bool { return p.ahead.Load() == 0 })
			if n := s.requests(); n != 1 {
				t.Errorf("the server saw %d requests, want that of the first job", n)
			}
			switch how {
			case "stop":
				eventuallyTrue(t, "no connection is left", func() bool { return open.Load() == 0 })
				return
			case "pause":
				p.must(p.queue.Admin().Resume(t.Context(), "a"))
			case "cancel":
				ids = append(ids, p.offer(1)...)
			}
			p.done(ids[len(ids)-1])
			if n := s.requests(); n != 2 || s.connections() != 1 {
				t.Errorf("the server saw %d requests on %d connections, want 2 on one", n, s.connections())
			}
		})
	}
}

// A server that closes a connection before it was used is connected to again, and one that takes
// none for a while is no server that loses a job.
func TestHTTPLineIsLost(t *testing.T) {
	noLeaks(t)
	var first atomic.Bool
	conns := make(chan net.Conn, 1)
	s := newSink(t, false, true, func(c net.Conn, state http.ConnState) {
		if state == http.StateIdle && first.CompareAndSwap(false, true) {
			conns <- c
		}
	})
	p := newPool(t, newHTTPTest(t, HTTPConfig{URL: s.URL}), 2, longLead)
	ids := p.offer(2)
	p.done(ids[0])
	p.granted()
	p.granted()
	(<-conns).Close() // under a start that waits for its slot on it
	if job := p.done(ids[1]); job.Attempt != 1 {
		t.Errorf("%d attempts, want 1: the connection was lost before the request was sent", job.Attempt)
	}
	if n := s.requests(); n != 2 || s.connections() != 2 {
		t.Errorf("the server saw %d requests on %d connections, want one on each of 2", n, s.connections())
	}
}

// A server that cannot be reached fails attempts, each in a slot, as it does where nothing is made
// ready.
func TestHTTPNotThere(t *testing.T) {
	noLeaks(t)
	s := newSink(t, false, true, nil)
	address := s.Listener.Addr().String()
	s.Listener.Close()
	p := newPool(t, newHTTPTest(t, HTTPConfig{URL: "http://" + address}), 50, 0)
	id := p.offer(1)[0]
	var failed int64
	eventuallyTrue(t, "two attempts fail", func() bool {
		info, err := p.queue.Admin().Tenant(t.Context(), "a")
		p.must(err)
		failed = info.Counters.Failed
		return failed >= 2
	})
	l, err := net.Listen("tcp", address)
	p.must(err)
	again := &http.Server{Handler: s}
	go again.Serve(l)
	defer again.Close()
	if job := p.done(id); job.Attempt < 3 {
		t.Errorf("%d attempts, want those that failed to count", job.Attempt)
	}
}
