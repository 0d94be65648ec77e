package redistest

import (
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// StartReplica starts a replica of a server and returns when it is in step. from is the address at
// which it finds the server: that of a Link, or empty for the server's own. It skips like Start.
func StartReplica(t testing.TB, of *Server, from string, opts ...Option) *Server {
	t.Helper()
	if from == "" {
		from = of.Addr()
	}
	host, port, err := net.SplitHostPort(from)
	if err != nil {
		t.Fatalf("redistest: address of the primary: %v", err)
	}
	s := Start(t, append(opts[:len(opts):len(opts)], Args("--replicaof", host, port))...)
	eventually(t, "replica in step", func() error { return s.follows() })
	return s
}

// Promote makes a replica a primary, as an operator does by hand.
func (s *Server) Promote() {
	s.t.Helper()
	if err := s.Client().ReplicaOf(s.t.Context(), "NO", "ONE").Err(); err != nil {
		s.t.Fatalf("redistest: promote %s: %v", s.Addr(), err)
	}
}

// follows reports whether a replica has its primary's data.
func (s *Server) follows() error {
	client := redis.NewClient(clientOptions(s.Addr(), s.cfg.password))
	defer client.Close()
	info, err := client.Info(s.t.Context(), "replication").Result()
	if err == nil && !strings.Contains(info, "master_link_status:up") {
		err = errNotInStep(info)
	}
	return err
}

type errNotInStep string

func (e errNotInStep) Error() string { return "not in step: " + string(e) }
