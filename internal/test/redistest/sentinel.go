package redistest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// MasterName is what the sentinels of StartSentinel call their master.
const MasterName = "mymaster"

// Sentinel is a master with two replicas, watched by three sentinels. A master
// that is killed is replaced within some 2 s.
type Sentinel struct {
	Servers   []*Server // the first one is the master at the start
	Sentinels []*Server
	t         testing.TB
}

// StartSentinel starts the set, with the options given to each of the three
// servers, and returns when the replicas are in step and the sentinels know each
// other. It skips like Start.
func StartSentinel(t testing.TB, opts ...Option) *Sentinel {
	t.Helper()
	set := &Sentinel{t: t}
	master := Start(t, opts...)
	set.Servers = []*Server{master}
	opts = append(slices.Clone(opts), Args("--replicaof", "127.0.0.1", strconv.Itoa(master.port)))
	for range 2 {
		replica := Start(t, opts...)
		set.Servers = append(set.Servers, replica)
	}
	eventually(t, "both replicas in step", func() error { return set.inStep(master) })
	for range 3 {
		set.Sentinels = append(set.Sentinels, startSentinel(t, master))
	}
	for _, sentinel := range set.Sentinels {
		eventually(t, "sentinel knows all", func() error { return knowsAll(t.Context(), sentinel) })
	}
	return set
}

// startSentinel starts one sentinel, which keeps what it learns in its own
// configuration file.
func startSentinel(t testing.TB, master *Server) *Server {
	t.Helper()
	s := &Server{t: t, path: testenv.Need(t, "redis"), cfg: newConfig(t, nil), sentinel: true}
	lines := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", MasterName, master.port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 2000", MasterName),
		fmt.Sprintf("sentinel failover-timeout %s 3000", MasterName),
	}
	if master.cfg.password != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", MasterName, master.cfg.password))
	}
	file := filepath.Join(s.cfg.dir, "sentinel.conf")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	s.cfg.first = []string{file}
	s.startAnywhere()
	return s
}

// URL names the set as a --redis flag takes it.
func (s *Sentinel) URL() string {
	query := url.Values{"master": {MasterName}}
	if password := s.Servers[0].cfg.password; password != "" {
		query.Set("password", password)
	}
	return "redis-sentinel://" + strings.Join(addrs(s.Sentinels), ",") + "/0?" + query.Encode()
}

// Client returns a new client for whichever server is master, closed when the test
// ends.
func (s *Sentinel) Client() *redis.Client {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:            MasterName,
		SentinelAddrs:         addrs(s.Sentinels),
		Password:              s.Servers[0].cfg.password,
		ContextTimeoutEnabled: true,
	})
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Master returns the server that the first sentinel takes for the master.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	client := redis.NewSentinelClient(clientOptions(s.Sentinels[0].Addr(), ""))
	defer client.Close()
	found, err := client.GetMasterAddrByName(s.t.Context(), MasterName).Result()
	if err != nil {
		s.t.Fatalf("redistest: master's address: %v", err)
	}
	addr := net.JoinHostPort(found[0], found[1])
	for _, server := range s.Servers {
		if server.Addr() == addr {
			return server
		}
	}
	s.t.Fatalf("redistest: the sentinels name a master %s that is not ours", addr)
	return nil
}

// Failover has the sentinels choose another master at once, with the old one alive, and returns
// when they have begun.
func (s *Sentinel) Failover() {
	s.t.Helper()
	client := redis.NewSentinelClient(clientOptions(s.Sentinels[0].Addr(), ""))
	defer client.Close()
	// A sentinel that has heard of no replica fit for it, or is busy with another failover, refuses
	// for now.
	eventually(s.t, "a failover by hand", func() error { return client.Failover(s.t.Context(), MasterName).Err() })
}

// InStep returns nil when both other servers are replicas of the present master and have its data.
func (s *Sentinel) InStep() error { return s.inStep(s.Master()) }

// inStep reports whether both replicas have the master's data.
func (s *Sentinel) inStep(master *Server) error {
	client := redis.NewClient(clientOptions(master.Addr(), master.cfg.password))
	defer client.Close()
	info, err := client.Info(s.t.Context(), "replication").Result()
	if err != nil {
		return err
	}
	if strings.Count(info, "state=online") != 2 {
		return fmt.Errorf("INFO replication: %s", info)
	}
	return nil
}

// knowsAll reports whether a sentinel sees both replicas and both other sentinels.
func knowsAll(ctx context.Context, sentinel *Server) error {
	client := redis.NewSentinelClient(clientOptions(sentinel.Addr(), ""))
	defer client.Close()
	master, err := client.Master(ctx, MasterName).Result()
	if err != nil {
		return err
	}
	if master["num-slaves"] != "2" || master["num-other-sentinels"] != "2" || master["flags"] != "master" {
		return fmt.Errorf("%s replicas, %s other sentinels, flags %s; want 2, 2, master",
			master["num-slaves"], master["num-other-sentinels"], master["flags"])
	}
	return nil
}

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, server := range servers {
		list[i] = server.Addr()
	}
	return list
}
