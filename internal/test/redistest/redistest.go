// Package redistest gives tests a Redis of their own.
//
// Every server is a child of the test on a free loopback port, proven to be ours
// by its process id, and gone when the test ends. No test ever talks to a Redis
// that it did not start.
package redistest

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/jobshaper/jobshaper/internal/embedded/redisproc"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// readyWithin bounds the start of one server, which takes some 20 ms.
const readyWithin = testenv.Patience

// clusterReload is how often our cluster clients learn the topology anew; go-redis would do so
// every minute, and a failover would take as long.
const clusterReload = time.Second

// startAttempts is how many ports are tried when others take them from us.
const startAttempts = 10

// Server is a redis-server child of a test. Its methods belong to the goroutine
// of the test, since they end it when they fail.
type Server struct {
	t        testing.TB
	path     string // of the redis-server program
	cfg      config
	port     int
	busPort  int // for a cluster node, else 0
	proc     *redisproc.Process
	sentinel bool
}

// Start runs a redis-server for this test, without persistence unless an option
// says otherwise, and ends it when the test ends. It skips the test where
// redis-server is missing, by the rule of testenv.Need.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{t: t, path: testenv.Need(t, "redis"), cfg: newConfig(t, opts)}
	s.startAnywhere()
	return s
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the server's address as a --redis flag takes it.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	if s.cfg.password != "" {
		u.User = url.UserPassword("", s.cfg.password)
	}
	return u.String()
}

// PID is the process id of the running server.
func (s *Server) PID() int { return s.proc.PID() }

// Dir is the folder the server keeps its files in.
func (s *Server) Dir() string { return s.cfg.dir }

// Client returns a new client, closed when the test ends.
func (s *Server) Client() *redis.Client {
	client := redis.NewClient(clientOptions(s.Addr(), s.cfg.password))
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Kill ends the server with SIGKILL, as a crash would, and waits for it.
func (s *Server) Kill() { s.proc.Kill() }

// Stop shuts the server down in an orderly way and waits for it. One that is paused is
// continued first: it could not act on a signal.
func (s *Server) Stop() {
	s.t.Helper()
	_ = s.proc.Signal(syscall.SIGCONT) // one that has ended needs none
	if err := s.proc.Stop(readyWithin); err != nil {
		s.t.Errorf("redistest: %v", err)
	}
}

// Restart starts the server again on the same port and folder, after Kill or
// Stop; one that still runs is stopped first. It returns when the data is loaded.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	if err := s.startOnce(); err != nil {
		s.t.Fatalf("redistest: restart: %v", err)
	}
}

// Pause freezes the server (SIGSTOP): connections stay open, nothing is answered.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Continue ends a Pause.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.proc.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %v to redis-server (pid %d): %v", sig, s.PID(), err)
	}
}

// startAnywhere starts the server on a port of its choice and registers its end.
func (s *Server) startAnywhere() {
	s.t.Helper()
	var err error
	for range startAttempts {
		if s.port, err = freePort(); err != nil {
			continue
		}
		if s.cfg.cluster {
			if s.busPort, err = freePort(); err != nil {
				continue
			}
		}
		if err = s.startOnce(); err == nil {
			// Looked up in s only now: a restarted server is another process.
			s.t.Cleanup(func() { s.proc.Kill() })
			return
		}
	}
	s.t.Fatalf("redistest: no server after %d attempts: %v", startAttempts, err)
}

// startOnce starts the server on its port and waits until it answers.
func (s *Server) startOnce() error {
	proc, err := redisproc.Start(s.path, s.args(), nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	if err := proc.Ready(ctx, "tcp", s.Addr(), s.cfg.password); err != nil {
		proc.Kill()
		return err
	}
	s.proc = proc
	return nil
}

// clientOptions are those of every client we hand out. A context's deadline ends a
// call that waits for a frozen server. Maintenance notifications are off: no
// open-source server sends them, and asking costs a DNS lookup that may not cross
// a synctest bubble.
func clientOptions(addr, password string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		Password:                 password,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: maintenanceOff(),
	}
}

func maintenanceOff() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// eventually asks condition until it holds, and fails the test after a bound that
// only a broken system reaches. what says what was waited for.
func eventually(t testing.TB, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(readyWithin)
	err := errors.New("never asked")
	for time.Now().Before(deadline) {
		if err = condition(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("redistest: %s: not after %v: %v", what, readyWithin, err)
}
