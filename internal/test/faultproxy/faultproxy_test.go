package faultproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// silence is how long nothing is heard of where nothing is to come.
const silence = 50 * time.Millisecond

// echo answers each line with the same line, and remembers what it got.
type echo struct {
	listener net.Listener
	heard    chan string // lines
	gone     chan bool   // connections that ended
}

// start starts an echo and a proxy before it, until the test ends.
func start(t *testing.T) (*echo, *Proxy) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{l, make(chan string, 100), make(chan bool, 100)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						e.gone <- true
						return
					}
					e.heard <- line
					_, _ = io.WriteString(c, line) // a client that is gone shows at the next read
				}
			})
		}
	})
	p, err := Start(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		p.Close()
		_ = l.Close()
		running.Wait()
	})
	return e, p
}

// client is one connection.
type client struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func connect(t *testing.T, p *Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// hears fails the test unless a line comes.
func (c *client) hears(line string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(testenv.Patience))
	if got, err := c.in.ReadString('\n'); got != line+"\n" {
		c.t.Fatalf("heard %.40q (%v), want %.40q", got, err, line)
	}
}

// ends fails the test unless the connection is closed without another byte.
func (c *client) ends() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(testenv.Patience))
	if got, err := c.in.ReadString('\n'); got != "" || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard %.40q (%v), want the end", got, err)
	}
}

// silent fails the test if anything is heard, the end too.
func (c *client) silent() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(silence))
	if got, err := c.in.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard %.40q (%v), want nothing", got, err)
	}
}

func TestCutAndRefuse(t *testing.T) {
	e, p := start(t)
	c := connect(t, p)
	c.say("one")
	c.hears("one")
	p.Cut()
	c.ends()
	<-e.gone
	c = connect(t, p)
	c.say("two")
	c.hears("two")
	p.Refuse()
	c.ends()
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("connected although the proxy refuses")
	}
	if err := p.Accept(); err != nil {
		t.Fatal(err)
	}
	c = connect(t, p)
	c.say("three")
	c.hears("three")
}

// TestSwallow: the request arrives, its answer does not, and the next one is as ever. Where the
// request is longer than what is read at a time, it is found all the same.
func TestSwallow(t *testing.T) {
	e, p := start(t)
	pad := strings.Repeat("x", 64<<10-4)
	for _, line := range []string{"a needle", pad + "a needle" + pad} {
		c := connect(t, p)
		trap := p.Swallow(Containing("needle"))
		c.say("hay")
		c.hears("hay")
		<-e.heard
		c.say(line)
		c.ends()
		<-trap.Sprung()
		if got := <-e.heard; got != line+"\n" {
			t.Errorf("the server got %.40q", got)
		}
		c = connect(t, p)
		c.say(line)
		c.hears(line)
		<-e.heard
	}
}

func TestCutBefore(t *testing.T) {
	e, p := start(t)
	c := connect(t, p)
	trap := p.CutBefore(Containing("needle"))
	c.say(strings.Repeat("x", 1<<20) + " needle")
	c.ends()
	<-trap.Sprung()
	<-e.gone
	c = connect(t, p)
	c.say("needle")
	c.hears("needle")
	if got := <-e.heard; got != "needle\n" || len(e.heard) > 0 {
		t.Errorf("the server got %.40q, want nothing of the first request", got)
	}
}

// TestStall: nothing gets through a black hole until it is none any more.
func TestStall(t *testing.T) {
	_, p := start(t)
	old := connect(t, p)
	old.say("before")
	old.hears("before")
	p.Stall()
	fresh := connect(t, p)
	old.say("one")
	fresh.say("two")
	old.silent()
	fresh.silent()
	p.Flow()
	old.hears("one")
	fresh.hears("two")
	p.Stall()
	p.Cut()
	old.ends()
}

// TestSever: a half-open connection is dead on one side and silent on the other.
func TestSever(t *testing.T) {
	e, p := start(t)
	c := connect(t, p)
	c.say("before")
	c.hears("before")
	p.Sever()
	<-e.gone
	c.say("into the void")
	c.silent()
	c.say("again")
	c.silent()
	c = connect(t, p)
	c.say("after")
	c.hears("after")
}

func TestDelay(t *testing.T) {
	_, p := start(t)
	c := connect(t, p)
	const d = 60 * time.Millisecond
	p.Delay(d)
	begun := time.Now()
	c.say("slow")
	c.hears("slow")
	if took := time.Since(begun); took < d {
		t.Errorf("a round trip took %v, want at least %v", took, d)
	}
}

func TestServerAway(t *testing.T) {
	e, p := start(t)
	_ = e.listener.Close()
	connect(t, p).ends()
}
