package e2e

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
)

// sink is a fragile downstream: it writes down each request when it arrives, in a history of its
// own.
type sink struct {
	url  string
	path string            // of its history
	rec  *history.Recorder // of a history that may be long; nil: it is kept in seen

	mu     sync.Mutex
	seen   history.History
	refuse int // how many of the next requests it answers with 429 and a Retry-After of a second
}

// senderHeader says which process sent a request.
const senderHeader = "X-Sender"

func (r *rig) sink() *sink {
	s := &sink{}
	server := httptest.NewServer(s)
	r.t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *sink) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	e := history.Event{Kind: history.Start, At: history.Now(), Wall: time.Now().UnixMicro()}
	e.Tenant, e.ID = req.Header.Get("Shaper-Tenant"), req.Header.Get("Shaper-Job-Id")
	e.Attempt, _ = strconv.Atoi(req.Header.Get("Shaper-Attempt"))
	e.Slot, _ = strconv.ParseInt(req.Header.Get("Shaper-Slot"), 10, 64)
	e.PID, _ = strconv.Atoi(req.Header.Get(senderHeader))
	if s.rec != nil {
		if err := s.rec.Record(e); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, e)
	if s.refuse > 0 {
		s.refuse--
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// closingSink is a sink that closes each connection after its answer, and keeps its history in a
// file.
func (r *rig) closingSink() *sink {
	r.t.Helper()
	s := &sink{path: filepath.Join(r.t.TempDir(), "arrivals")}
	var err error
	s.rec, err = history.Open(s.path)
	r.must(err)
	r.t.Cleanup(func() { s.rec.Close() })
	server := httptest.NewUnstartedServer(s)
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	r.t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// history returns what arrived so far.
func (s *sink) history() history.History {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(history.History(nil), s.seen...)
}

// onTheWay is how long a request may be under way until a sink reads its clock, where no process is
// kept waiting.
const onTheWay = 5 * time.Millisecond

// atSink is what a sink may see of a tenant with rule r: a request is under way for a few ms until
// the sink reads its clock, and longer on a machine that keeps processes waiting, since a dozen
// goroutines take part.
func (r *rig) atSink(rule history.Rule) history.Rule {
	rule.Slack += onTheWay + r.weather.longest()
	return rule
}
