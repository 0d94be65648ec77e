package policing

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// proxy is a node's own wire to a server, which can be cut.
type proxy struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// wire starts a proxy to the server, and returns it with a client that goes through it.
// Both end with the test.
func wire(t *testing.T, to string) (*proxy, *redis.Client) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(in) })
		}
	})
	client := redis.NewClient(&redis.Options{
		Addr:                     l.Addr().String(),
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		_ = client.Close()
		_ = l.Close()
		p.sever()
		wg.Wait()
	})
	return p, client
}

// serve carries bytes both ways until one side ends.
func (p *proxy) serve(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer out.Close()
	p.mu.Lock()
	if p.cut {
		p.mu.Unlock()
		return
	}
	p.conns = append(p.conns, in, out)
	p.mu.Unlock()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(in, out)
		_ = in.Close()
	}()
	_, _ = io.Copy(out, in)
	_ = out.Close()
	<-back
}

// sever cuts what is connected, and what will connect, until mend.
func (p *proxy) sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}
