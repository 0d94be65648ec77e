package redistest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Link is a way to a server that a test can stall: connections through it stay open, and what is
// sent waits in it. It ends with the test. Its methods may be called from any goroutine.
type Link struct {
	to       string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	moving  *sync.Cond
	stalled bool
	closed  bool
	conns   []net.Conn
}

// StartLink starts a link to an address.
func StartLink(t testing.TB, to string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: link: %v", err)
	}
	l := &Link{to: to, listener: listener}
	l.moving = sync.NewCond(&l.mu)
	l.running.Go(l.accept)
	t.Cleanup(l.Close)
	return l
}

// Addr is where the link begins.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Stall holds back all that is sent from now on, in both directions.
func (l *Link) Stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = true
}

// Close ends the link; what waits in it is lost. It waits for its goroutines and may be called
// twice.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	for _, c := range l.conns {
		_ = c.Close() // it is no longer needed
	}
	l.moving.Broadcast()
	l.mu.Unlock()
	_ = l.listener.Close() // it fails if closed twice
	l.running.Wait()
}

func (l *Link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = in.Close() // the other side sees that there is nobody
			continue
		}
		if !l.own(in, out) {
			return
		}
		l.running.Go(func() { l.carry(in, out) })
		l.running.Go(func() { l.carry(out, in) })
	}
}

// own takes connections over, unless the link is closed.
func (l *Link) own(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		for _, c := range conns {
			_ = c.Close() // never used
		}
		return false
	}
	l.conns = append(l.conns, conns...)
	return true
}

// carry copies until an end closes, and closes the other one, unless the link is stalled then.
func (l *Link) carry(from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if !l.pass() {
			return
		}
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			if tcp, ok := to.(*net.TCPConn); ok && err == io.EOF {
				_ = tcp.CloseWrite() // the answer may still come
				return
			}
			_ = to.Close() // its reader ends
			return
		}
	}
}

// pass waits while the link is stalled. It returns false once it is closed.
func (l *Link) pass() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.stalled && !l.closed {
		l.moving.Wait()
	}
	return !l.closed
}
