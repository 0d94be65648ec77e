package target

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// sink is a fragile server that notes when requests arrive, and closes each connection after its
// answer.
type sink struct {
	*httptest.Server
	mu    sync.Mutex
	at    []time.Time
	late  []time.Duration // of each arrival after its slot
	peers map[string]int  // requests by connection
}

func newSink(t *testing.T, secure, keepAlive bool, state func(net.Conn, http.ConnState)) *sink {
	s := &sink{peers: map[string]int{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.SetKeepAlivesEnabled(keepAlive)
	s.Config.ConnState = state
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *sink) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	now := time.Now()
	slot, _ := strconv.ParseInt(r.Header.Get("Shaper-Slot"), 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.late = append(s.at, now), append(s.late, now.Sub(time.UnixMicro(slot)))
	s.peers[r.RemoteAddr]++
}

// arrivals returns the least gap between arrivals, and half of their latenesses.
func (s *sink) arrivals() (least, median time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.at, time.Time.Compare)
	least = time.Hour
	for i := 1; i < len(s.at); i++ {
		least = min(least, s.at[i].Sub(s.at[i-1]))
	}
	slices.Sort(s.late)
	return least, s.late[len(s.late)/2]
}

// requests is how many arrived.
func (s *sink) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// connections is how many they came over.
func (s *sink) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.peers)
}

// hesitant is the longest that this machine kept somebody from running who wanted to.
func hesitant(t *testing.T) func() time.Duration {
	var longest time.Duration
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			begun := time.Now()
			select {
			case <-quit:
				return
			case <-time.After(time.Millisecond):
				longest = max(longest, time.Since(begun)-time.Millisecond)
			}
		}
	}()
	stop := sync.OnceFunc(func() { close(quit); <-done })
	t.Cleanup(stop)
	return func() time.Duration { stop(); return longest }
}

// TestHTTPArrivesInItsSlot looks from the other side: at what a server sees that is far away, and
// takes a connection for each request. Each is made before its slot, so however long connecting
// takes, what arrives is spaced as the starts are.
func TestHTTPArrivesInItsSlot(t *testing.T) {
	testenv.Long(t, "takes more than 3 s")
	const roundTrip, rate, jobs = 80 * time.Millisecond, 10, 15
	for _, tc := range []struct {
		name      string
		secure    bool
		unprepped bool // a control: what a server sees where nothing is made ready
	}{
		{name: "plain"},
		{name: "TLS", secure: true},
		{name: "not prepared", unprepped: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			noLeaks(t)
			s := newSink(t, tc.secure, false, nil)
			target := newHTTPTest(t, HTTPConfig{URL: s.URL})
			target.transport.DialContext = noted(faraway(roundTrip))
			if tc.secure { // the handshake is a round trip more
				roots := x509.NewCertPool()
				roots.AddCert(s.Certificate())
				target.transport.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "example.com"}
			}
			var h asynq.Handler = target
			if tc.unprepped {
				h = asynq.HandlerFunc(target.ProcessTask)
			}
			p := newPool(t, h, rate, 0)
			longest := hesitant(t)
			for _, id := range p.offer(jobs) {
				p.done(id)
			}
			least, median := s.arrivals()
			slack := 5*time.Millisecond + longest()
			t.Logf("%d arrivals: least gap %v of %v; median %v after the slot; the machine stalled for up to %v",
				jobs, least, time.Second/rate, median, slack-5*time.Millisecond)
			wantGap, wantLate := time.Second/rate-20*time.Millisecond-slack, roundTrip/2
			if tc.unprepped {
				if least > time.Second/rate-20*time.Millisecond || median < wantLate {
					t.Errorf("least gap %v, median %v: this server sees no difference", least, median)
				}
				return
			}
			if least < wantGap {
				t.Errorf("least gap %v, want at least %v", least, wantGap)
			}
			if median > wantLate {
				t.Errorf("half of the requests arrive more than %v after their slots: connecting is in it", median)
			}
		})
	}
}

// faraway connects to servers that are a round trip away: to connect takes half of it and one and a
// half, by turns, and an answer takes all of it.
func faraway(roundTrip time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var dials atomic.Int64
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		takes := roundTrip / 2
		if dials.Add(1)%2 == 0 {
			takes *= 3
		}
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &farConn{Conn: c, roundTrip: roundTrip}, err
	}
}

type farConn struct {
	net.Conn
	roundTrip time.Duration
	spoke     atomic.Bool // since it read
}

func (c *farConn) Write(b []byte) (int, error) {
	c.spoke.Store(true)
	return c.Conn.Write(b)
}

func (c *farConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.spoke.Swap(false) {
		time.Sleep(c.roundTrip)
	}
	return n, err
}
