package embedded

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// tick is how often the imitation's clock is moved. If left to move on its own
// (ClockTTL), it walks all keys at each command, which with some thousand jobs makes
// everything ten times slower.
const tick = 100 * time.Millisecond

// memory is the backend inside this process. It listens on loopback TCP, since
// miniredis' connections without a network hang on large requests.
type memory struct {
	server  *miniredis.Miniredis
	address string // the URL

	quit  chan struct{} // asks expire to end
	ended chan struct{} // closed by expire when it has ended
}

func startMemory() (*memory, error) {
	m := &memory{
		server: miniredis.NewMiniRedis(),
		quit:   make(chan struct{}),
		ended:  make(chan struct{}),
	}
	password := rand.Text() // a loopback port is open to all users of the machine
	m.server.RequireAuth(password)
	if err := m.server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("store in this process: %w", err)
	}
	m.address = (&url.URL{Scheme: "redis", User: url.UserPassword("", password), Host: m.server.Addr(), Path: "/0"}).String()
	go m.expire()
	return m, nil
}

// expire lets keys expire, until quit; then it closes the server.
func (m *memory) expire() {
	defer close(m.ended)
	defer m.server.Close()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-m.quit:
			return
		case <-ticker.C:
			now := time.Now()
			m.server.FastForward(now.Sub(last))
			last = now
		}
	}
}

func (m *memory) url() string { return m.address }

func (m *memory) describe() string {
	return "store inside this process, since no redis-server is on PATH: jobs END with this process; " +
		"install redis-server or use --redis URL to keep them"
}

func (m *memory) done() <-chan struct{} { return m.ended }

func (m *memory) err() error { return nil }

func (m *memory) stop() error {
	close(m.quit)
	<-m.ended
	return nil
}
