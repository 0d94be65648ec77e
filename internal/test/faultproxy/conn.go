package faultproxy

import (
	"net"
	"sync"
	"time"
)

// conn is one client's connection, joined to a connection of its own to the server.
type conn struct {
	proxy          *Proxy
	client, server net.Conn
	ended          chan struct{}
	end            func() // closes both sides, once

	mu      sync.Mutex // guards what follows
	request []byte     // sent since the server last spoke
	doom    *Trap      // its answer will be lost
	severed bool
}

// serve joins a client to the server until either side is gone.
func (p *Proxy) serve(client net.Conn) {
	c, err := p.join(client)
	if err != nil {
		_ = client.Close() // as if there were no server
		return
	}
	p.running.Go(func() {
		pump(c.server, c.answer)
		if !c.isSevered() {
			c.end()
		}
	})
	pump(c.client, c.ask)
	c.end()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

func (p *Proxy) join(client net.Conn) (*conn, error) {
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c := &conn{proxy: p, client: client, server: server, ended: make(chan struct{})}
	c.end = sync.OnceFunc(func() {
		close(c.ended)
		_ = c.client.Close() // both may be closed already
		_ = c.server.Close()
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener == nil {
		_ = server.Close()
		return nil, errClosed
	}
	p.conns[c] = true
	return c, nil
}

// pump hands on what it reads until that fails or there is nobody to take it.
func pump(from net.Conn, pass func([]byte) bool) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 && !pass(b[:n]) || err != nil {
			return
		}
	}
}

// ask hands a part of a request on to the server.
func (c *conn) ask(b []byte) bool {
	if c.isSevered() {
		return true
	}
	c.mu.Lock()
	c.request = append(c.request, b...)
	t := c.proxy.caught(c.request)
	if t != nil && t.deliver {
		c.doom = t
	}
	c.mu.Unlock()
	if t != nil && !t.deliver {
		c.end()
		close(t.sprung)
		return false
	}
	if !c.wait() {
		return c.isSevered() // its client goes on talking
	}
	_, err := c.server.Write(b)
	return err == nil || c.isSevered()
}

// answer hands a part of an answer on to the client.
func (c *conn) answer(b []byte) bool {
	c.mu.Lock()
	doom := c.doom
	c.request = nil
	c.mu.Unlock()
	if doom != nil {
		c.end()
		close(doom.sprung)
		return false
	}
	if !c.wait() {
		return false
	}
	_, err := c.client.Write(b)
	return err == nil
}

// wait waits as long as the bytes are on their way. False means that they never arrive, because the
// connection has ended.
func (c *conn) wait() bool {
	c.proxy.mu.Lock()
	flows, latency := c.proxy.flows, c.proxy.latency
	c.proxy.mu.Unlock()
	t := time.NewTimer(latency)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.ended:
		return false
	}
	select {
	case <-flows:
		return !c.isSevered()
	case <-c.ended:
		return false
	}
}

func (c *conn) sever() {
	c.mu.Lock()
	c.severed = true
	c.mu.Unlock()
	_ = c.server.Close()
}

func (c *conn) isSevered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.severed
}
