package demo

import (
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// sink is a downstream that breaks: a real HTTP server that takes a number of requests in any
// second, and after one more is down for a while.
type sink struct {
	server *http.Server
	url    string
	record *record

	mu     sync.Mutex
	recent []time.Time // requests of the last second; guarded by mu
	until  time.Time   // down until then; guarded by mu
}

func newSink(r *record) (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{url: "http://" + l.Addr().String(), record: r}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.server.Serve(l) }() // ends with close, as it should
	return s, nil
}

func (s *sink) close() { _ = s.server.Close() }

// ServeHTTP takes a request if it can.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	ok := s.take(now)
	s.record.request(now, ok)
	_, _ = io.Copy(io.Discard, r.Body) // so that the connection can be used again
	if !ok {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (s *sink) take(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		return false
	}
	for len(s.recent) > 0 && now.Sub(s.recent[0]) >= time.Second {
		s.recent = s.recent[1:]
	}
	if len(s.recent) == capacity {
		s.recent, s.until = nil, now.Add(outage)
		s.record.outage()
		return false
	}
	s.recent = append(s.recent, now)
	return true
}
