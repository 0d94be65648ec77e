package redistest

import (
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// StartReplica starts a replica of a server and returns when it is in step, and the server counts
// on it. from is the address at
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
	eventually(t, "replica in step", func() error { return s.replication(inStep) })
	eventually(t, "replica counted", func() error { return of.replication(counted) })
	return s
}

// Promote makes a replica a primary, as an operator does by hand.
func (s *Server) Promote() {
	s.t.Helper()
	if err := s.Client().ReplicaOf(s.t.Context(), "NO", "ONE").Err(); err != nil {
		s.t.Fatalf("redistest: promote %s: %v", s.Addr(), err)
	}
}

// replication returns an error unless what a server says of its replication is good.
func (s *Server) replication(good func(info string) bool) error {
	client := redis.NewClient(clientOptions(s.Addr(), s.cfg.password))
	defer client.Close()
	info, err := client.Info(s.t.Context(), "replication").Result()
	if err == nil && !good(info) {
		err = errNotYet(info)
	}
	return err
}

// inStep reports whether a replica has its primary's data.
func inStep(info string) bool { return strings.Contains(info, "master_link_status:up") }

// counted reports whether a primary sends all its replicas what is written, and, where
// min-replicas-to-write asks for some, found them good enough. It does so later than they do.
func counted(info string) bool {
	return strings.Contains(info, "state=online") && strings.Count(info, "state=online") == strings.Count(info, "state=") &&
		!strings.Contains(info, "min_slaves_good_slaves:0")
}

type errNotYet string

func (e errNotYet) Error() string { return "not yet: " + string(e) }
