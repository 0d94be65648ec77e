package redisurl

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestSentinelURL(t *testing.T) {
	testenv.Long(t, "starts six servers")
	t.Parallel()
	set := redistest.StartSentinel(t, redistest.AOF(), redistest.Args("--appendfsync", "always"), redistest.Password("open/ses@me"))
	client, err := Open(set.URL(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Errorf("a write through the sentinels: %v", err)
	}
	expect(t, Check(t.Context(), client))
}

func TestClusterURL(t *testing.T) {
	testenv.Long(t, "starts six servers")
	t.Parallel()
	ctx := t.Context()
	cluster := redistest.StartCluster(t, redistest.AOF(), redistest.Args("--appendfsync", "always"), redistest.Password("open/ses@me"))
	client, err := Open(cluster.URL(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if every := client.(*redis.ClusterClient).Options().ClusterStateReloadInterval; every != time.Second {
		t.Errorf("the topology is read anew every %v, want every second: noticing a failover takes that long", every)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		if err := client.Set(ctx, key, "v", 0).Err(); err != nil {
			t.Errorf("a write to the cluster: %v", err)
		}
	}
	expect(t, Check(ctx, client))

	// One of its nodes, taken for a server that stands alone.
	expect(t, Check(ctx, cluster.Nodes[0].Client()), "refuse: node of a cluster")

	// Without a primary and its replica some slots are served by nobody.
	cluster.Nodes[2].Kill()
	cluster.Nodes[5].Kill()
	problems := Check(ctx, client)
	if len(problems) == 0 || problems[0].Severity != Refuse {
		t.Errorf("a third of the slots is away: %v, want a reason to refuse", problems)
	}
}
