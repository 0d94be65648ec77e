// Package faultproxy is a network that fails as a test asks it to: a TCP proxy that cuts, refuses,
// delays, swallows and holds back. It is for tests only.
//
// It knows nothing of the protocol, except that a client waits for an answer before it sends its
// next request: what a connection sent since the server last spoke is a request.
package faultproxy

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Proxy is in front of one server. Its methods are safe for concurrent use. Close ends all its
// goroutines and waits for them.
type Proxy struct {
	target, addr string
	running      sync.WaitGroup

	mu       sync.Mutex // guards what follows
	listener net.Listener
	closed   bool
	conns    map[*conn]bool
	traps    []*Trap
	latency  time.Duration
	flows    chan struct{} // closed while bytes flow
}

// Start listens on a free loopback port, in front of target, host:port.
func Start(target string) (*Proxy, error) {
	p := &Proxy{target: target, conns: map[*conn]bool{}, flows: make(chan struct{})}
	close(p.flows)
	var err error
	// Below the ports that the system gives to outgoing connections: during Refuse, a client's own
	// dial could take the port.
	for range 100 {
		p.addr = fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(17000))
		if err = p.Accept(); err == nil {
			return p, nil
		}
	}
	return nil, err
}

// Addr is host:port where clients connect.
func (p *Proxy) Addr() string { return p.addr }

// Accept lets clients connect, as from the start; it ends Refuse.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	p.listener = l
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(client) })
		}
	})
	return nil
}

// Refuse closes all connections and refuses new ones, until Accept.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close() // it ends the loop of Accept
		p.listener = nil
	}
	p.mu.Unlock()
	p.Cut()
}

// Cut closes all connections on both sides. New ones are accepted.
func (p *Proxy) Cut() {
	for _, c := range p.all() {
		c.end()
	}
}

// Sever makes all connections half open: the server's side is closed, and the client hears nothing
// more, not even that. New connections work.
func (p *Proxy) Sever() {
	for _, c := range p.all() {
		c.sever()
	}
}

// Stall makes a black hole: connections stay, new ones are accepted, and nothing gets through,
// until Flow. Then what was sent meanwhile arrives, as it does with TCP, whether its sender still
// waits for an answer or not.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flows:
		p.flows = make(chan struct{})
	default:
	}
}

// Flow ends Stall.
func (p *Proxy) Flow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flows:
	default:
		close(p.flows)
	}
}

// Delay makes a round trip take this much longer, half of it each way. 0 ends it.
func (p *Proxy) Delay(roundTrip time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = roundTrip / 2
}

// Close ends everything and waits. It may be called twice.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse()
	p.running.Wait()
}

func (p *Proxy) all() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*conn
	for c := range p.conns {
		out = append(out, c)
	}
	return out
}

// Trap waits for one request and spoils it.
type Trap struct {
	matches func(request []byte) bool
	deliver bool // the server gets the request, and its answer is lost
	sprung  chan struct{}
}

// Sprung is closed once the request has been spoilt.
func (t *Trap) Sprung() <-chan struct{} { return t.sprung }

// Containing matches requests that hold these bytes.
func Containing(part string) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(part)) }
}

// Swallow lets the next request that matches reach the server, drops the answer, and closes the
// connection. matches sees a request as it grows, and is called for one request at a time.
func (p *Proxy) Swallow(matches func(request []byte) bool) *Trap { return p.trap(matches, true) }

// CutBefore closes the connection of the next request that matches before the server has the whole
// of it.
func (p *Proxy) CutBefore(matches func(request []byte) bool) *Trap { return p.trap(matches, false) }

func (p *Proxy) trap(matches func([]byte) bool, deliver bool) *Trap {
	t := &Trap{matches, deliver, make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

// caught takes the trap into which a request has stepped off the list; nil if there is none.
func (p *Proxy) caught(request []byte) *Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range p.traps {
		if t.matches(request) {
			p.traps = append(p.traps[:i:i], p.traps[i+1:]...)
			return t
		}
	}
	return nil
}

// errClosed ends a connection that came while the proxy closed.
var errClosed = errors.New("proxy closed")
