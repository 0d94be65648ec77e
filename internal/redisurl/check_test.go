package redisurl

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestMain(m *testing.M) {
	testenv.Abreast(4)
	redistest.VerifyTestMain(m)
}

// expect fails unless there is exactly one problem for each "severity: text" of want.
func expect(t *testing.T, got []Problem, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d problems, want %d: %v", len(got), len(want), got)
	}
	for _, w := range want {
		severity, text, _ := strings.Cut(w, ": ")
		found := false
		for _, p := range got {
			found = found || p.Severity.String() == severity && strings.Contains(p.Text, text)
		}
		if !found {
			t.Errorf("no %q among %v", w, got)
		}
	}
}

func TestExamine(t *testing.T) {
	fit := "maxmemory:0 maxmemory_policy:noeviction aof_enabled:1 aof_last_write_status:ok role:master loading:0 cluster_enabled:0 "
	for _, row := range []struct {
		name      string
		info      string // later fields win
		asCluster bool
		want      []string
	}{
		{"fit", "", false, nil},
		{"fit with a limit", "maxmemory:100", false, nil},
		{"evicts", "maxmemory:100 maxmemory_policy:allkeys-lru", false, []string{"refuse: maxmemory-policy allkeys-lru"}},
		{"evicts keys with a TTL", "maxmemory:100 maxmemory_policy:volatile-ttl", false, []string{"refuse: maxmemory-policy volatile-ttl"}},
		{"would evict", "maxmemory_policy:allkeys-lru", false, []string{"warn: maxmemory-policy allkeys-lru"}},
		{"no AOF", "aof_enabled:0", false, []string{"warn: appendonly no"}},
		{"disk full", "aof_last_write_status:err rdb_last_bgsave_status:err", false,
			[]string{"warn: aof_last_write_status err", "warn: rdb_last_bgsave_status err"}},
		{"nearly full", "maxmemory:1000 used_memory:900 mem_not_counted_for_evict:50", false, []string{"warn: used_memory 850 of maxmemory 1000: new jobs will soon"}},
		{"full of what replicas are owed", "maxmemory:1000 used_memory:900 mem_not_counted_for_evict:200", false, nil},
		{"full", "maxmemory:1000 used_memory:1000", false, []string{"warn: new jobs are refused"}},
		{"nothing bounds it", "used_memory_rss:900 total_system_memory:1000", false, []string{"warn: no maxmemory"}},
		{"old", "redis_version:6.0.5", false, []string{"refuse: redis_version 6.0.5"}},
		{"older", "redis_version:5.0.14", false, []string{"refuse: redis_version"}},
		{"old enough", "redis_version:6.0.6", false, nil},
		{"new", "redis_version:255.255.255", false, nil},
		{"replica", "role:slave master_host:h master_port:1", false, []string{"refuse: role replica"}},
		{"loading", "loading:1", false, []string{"warn: loading"}},
		{"cluster node, taken for a single one", "cluster_enabled:1", false, []string{"refuse: node of a cluster"}},
		{"cluster node", "cluster_enabled:1", true, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			expect(t, examine(parseInfo(strings.ReplaceAll(fit+row.info, " ", "\r\n")), row.asCluster), row.want...)
		})
	}
}

func TestCheckRealServers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	t.Run("evicts", func(t *testing.T) {
		s := redistest.Start(t, redistest.Args("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
		problems := Check(ctx, s.Client())
		expect(t, problems, "refuse: maxmemory-policy allkeys-lru with maxmemory 104857600", "warn: appendonly no")
		if problems[0].Severity != Refuse || problems[0].Node != s.Addr() {
			t.Errorf("first problem %+v, want the worst one, of node %s", problems[0], s.Addr())
		}
	})
	t.Run("fit", func(t *testing.T) {
		expect(t, Check(ctx, redistest.Start(t, redistest.AOF(), redistest.Args("--appendfsync", "always")).Client()))
	})
	t.Run("by the system's leave", func(t *testing.T) {
		expect(t, Check(ctx, redistest.Start(t, redistest.AOF()).Client()), "note: appendfsync everysec")
		expect(t, Check(ctx, redistest.Start(t, redistest.AOF(), redistest.Args("--appendfsync", "no")).Client()), "warn: appendfsync no")
	})
	t.Run("replica", func(t *testing.T) {
		primary := redistest.Start(t, redistest.AOF())
		host, port, _ := strings.Cut(primary.Addr(), ":")
		replica := redistest.Start(t, redistest.AOF(), redistest.Args("--replicaof", host, port))
		var got []Problem
		for _, p := range Check(ctx, replica.Client()) {
			if !strings.Contains(p.Text, "loading") { // its first sync may still run
				got = append(got, p)
			}
		}
		expect(t, got, "refuse: role replica", "note: appendfsync everysec")
	})
	t.Run("without the right to INFO", func(t *testing.T) { // and so to see a restart
		s := redistest.Start(t)
		err := s.Client().Do(ctx, "ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all", "-info").Err()
		if err != nil {
			t.Fatal(err)
		}
		client, err := Open(fmt.Sprintf("redis://worker:pw@%s", s.Addr()), Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		expect(t, Check(ctx, client), "refuse: INFO is refused")
	})
	t.Run("away", func(t *testing.T) {
		s := redistest.Start(t)
		client := s.Client()
		s.Kill()
		expect(t, Check(ctx, client), "refuse: nothing listens there")
	})
}

func TestCheckMiniredis(t *testing.T) {
	expect(t, Check(t.Context(), redistest.Mini(t)), "note: not a whole Redis")
}

func TestOpenTalksToARealServer(t *testing.T) {
	s := redistest.Start(t, redistest.Password("p@ss/word"))
	client, err := Open("redis://:p%40ss%2Fword@"+s.Addr()+"/2", Config{Name: "shaper-test"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if name, err := client.ClientGetName(t.Context()).Result(); err != nil || name != "shaper-test" {
		t.Errorf("CLIENT GETNAME = %q, %v; want shaper-test", name, err)
	}
}

func TestSlogAdapter(t *testing.T) {
	var out bytes.Buffer
	slogAdapter{slog.New(slog.NewTextHandler(&out, nil))}.Printf(t.Context(), "dial %s failed", "h:1")
	if got := out.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, `message="dial h:1 failed"`) {
		t.Errorf("logged %q, want a warning with the line", got)
	}
}
