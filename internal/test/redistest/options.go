package redistest

import (
	"strconv"
	"testing"
)

// Option changes how Start runs its server.
type Option func(*config)

type config struct {
	dir      string
	aof      bool
	cluster  bool
	password string
	first    []string // arguments that come before all others (a configuration file)
	extra    []string
}

// AOF keeps the data in an append-only file, synced every second: it survives
// Kill and Restart.
func AOF() Option { return func(c *config) { c.aof = true } }

// FailsOver is an option of a cluster that a test breaks: a node that is silent for 3 s is
// replaced, and not after 15 s.
func FailsOver() Option { return Args("--cluster-node-timeout", "3000") }

// Acknowledged is an option of a Redis with an append-only file: when killed, it comes back with
// all that it had acknowledged. With appendfsync everysec it does so only while the disk is fast:
// while the system still syncs the file, Redis answers before it writes, for up to two seconds.
func Acknowledged() Option { return Args("--appendfsync", "no") }

// Password makes the server ask for a password.
func Password(secret string) Option { return func(c *config) { c.password = secret } }

// Args adds arguments of redis-server, such as "--maxmemory", "100mb". They come
// last, so they win over ours.
func Args(args ...string) Option {
	return func(c *config) { c.extra = append(c.extra, args...) }
}

// asClusterNode is the option that StartCluster adds.
func asClusterNode(c *config) { c.cluster = true }

func newConfig(t testing.TB, opts []Option) config {
	c := config{dir: t.TempDir()}
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// args is the server's command line.
func (s *Server) args() []string {
	args := append([]string(nil), s.cfg.first...)
	args = append(args, "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.cfg.dir)
	if s.sentinel {
		return append(args, "--sentinel")
	}
	args = append(args, "--save", "", "--enable-debug-command", "local",
		// A replica of an idle primary counts as not in step until the first ping, by
		// default 10 s away; and a first copy waits for others to join, 5 s.
		"--repl-ping-replica-period", "1", "--repl-diskless-sync-delay", "0")
	if s.cfg.aof {
		args = append(args, "--appendonly", "yes", "--appendfsync", "everysec")
	} else {
		args = append(args, "--appendonly", "no")
	}
	if s.cfg.password != "" {
		args = append(args, "--requirepass", s.cfg.password, "--masterauth", s.cfg.password)
	}
	if s.cfg.cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(s.busPort),
			// A busy machine must not cause a failover; see FailsOver.
			"--cluster-node-timeout", "15000", "--cluster-config-file", "nodes.conf")
	}
	return append(args, s.cfg.extra...)
}
