package redistest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	clusterPrimaries = 3
	clusterSlots     = 16384

	nodeTimeout = "cluster-node-timeout"
	noFailover  = "cluster-replica-no-failover"
)

// Cluster is three primaries with a replica each. A primary that is killed is
// replaced within some 3 s.
type Cluster struct {
	Nodes []*Server // the first three are the primaries at the start, then a replica of each
	t     testing.TB
}

// StartCluster starts the cluster, with the options given to each node, and
// returns when every node agrees that all slots are served and every primary has
// its replica. It skips like Start.
func StartCluster(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	opts = append(slices.Clone(opts), asClusterNode)
	for range 2 * clusterPrimaries {
		node := Start(t, opts...)
		c.Nodes = append(c.Nodes, node)
	}
	c.join()
	return c
}

// join makes a cluster of the nodes. Meanwhile they take each other for gone within a second: that
// time, up to 5 s, is also how long a node that has seen no majority does not serve, and half of it
// how long they leave each other without news.
func (c *Cluster) join() {
	c.t.Helper()
	ctx := c.t.Context()
	clients := make([]*redis.Client, len(c.Nodes))
	var usual string
	for i, node := range c.Nodes {
		client := redis.NewClient(clientOptions(node.Addr(), node.cfg.password))
		defer client.Close()
		clients[i] = client
		got, err := client.ConfigGet(ctx, nodeTimeout).Result()
		if err != nil {
			c.t.Fatalf("redistest: CONFIG GET of cluster node %s: %v", node.Addr(), err)
		}
		usual = got[nodeTimeout]
		c.do(client, "CONFIG", "SET", nodeTimeout, 1000, noFailover, "yes")
		// Without epochs of their own they would first have to settle conflicts.
		c.do(client, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		for _, other := range c.Nodes[:i] {
			c.do(client, "CLUSTER", "MEET", "127.0.0.1", other.port, other.busPort)
		}
		if i < clusterPrimaries {
			c.do(client, "CLUSTER", "ADDSLOTSRANGE", i*clusterSlots/clusterPrimaries, (i+1)*clusterSlots/clusterPrimaries-1)
		}
	}
	for _, client := range clients {
		eventually(c.t, "cluster node knows the others", func() error {
			return clusterHas(ctx, client, fmt.Sprintf("cluster_known_nodes:%d\r\n", len(clients)))
		})
	}
	for i := range clusterPrimaries {
		c.do(clients[clusterPrimaries+i], "CLUSTER", "REPLICATE", c.id(clients[i]))
	}
	for _, client := range clients {
		eventually(c.t, "cluster node agrees", func() error {
			if err := clusterHas(ctx, client, "cluster_state:ok\r\n"); err != nil {
				return err
			}
			return clusterPaired(ctx, client)
		})
	}
	for _, client := range clients {
		c.do(client, "CONFIG", "SET", nodeTimeout, usual, noFailover, "no")
	}
}

// do sends a command that must succeed.
func (c *Cluster) do(client *redis.Client, args ...any) {
	c.t.Helper()
	if err := client.Do(c.t.Context(), args...).Err(); err != nil {
		c.t.Fatalf("redistest: %v to %s: %v", args, client.Options().Addr, err)
	}
}

// URL names the cluster as a --redis flag takes it.
func (c *Cluster) URL() string {
	var userinfo string
	if password := c.Nodes[0].cfg.password; password != "" {
		userinfo = url.UserPassword("", password).String() + "@"
	}
	return "redis-cluster://" + userinfo + strings.Join(addrs(c.Nodes), ",")
}

// Client returns a new client, closed when the test ends. Like those of our
// programs it learns the topology anew every second.
func (c *Cluster) Client() *redis.ClusterClient {
	client := c.client()
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *Cluster) client() *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                      addrs(c.Nodes),
		Password:                   c.Nodes[0].cfg.password,
		ContextTimeoutEnabled:      true,
		ClusterStateReloadInterval: clusterReload,
		MaintNotificationsConfig:   maintenanceOff(),
	})
}

// PrimaryOf returns the node that serves a key.
func (c *Cluster) PrimaryOf(key string) *Server {
	c.t.Helper()
	client := c.client()
	defer client.Close()
	node, err := client.MasterForKey(c.t.Context(), key)
	if err != nil {
		c.t.Fatalf("redistest: primary of key %q: %v", key, err)
	}
	for _, server := range c.Nodes {
		if server.Addr() == node.Options().Addr {
			return server
		}
	}
	c.t.Fatalf("redistest: primary of key %q is %s, which is not ours", key, node.Options().Addr)
	return nil
}

// ReplicaOf returns a running replica of a node, once it is in step.
func (c *Cluster) ReplicaOf(node *Server) *Server {
	c.t.Helper()
	var found *Server
	eventually(c.t, "a replica in step", func() error {
		for _, s := range c.Nodes {
			client := redis.NewClient(clientOptions(s.Addr(), s.cfg.password))
			info, err := client.Info(c.t.Context(), "replication").Result()
			_ = client.Close() // it was only there to ask
			if err == nil && strings.Contains(info, "role:slave") && strings.Contains(info, fmt.Sprintf("master_port:%d\r\n", node.port)) &&
				strings.Contains(info, "master_link_status:up") {
				found = s
				return nil
			}
		}
		return fmt.Errorf("none of %s", node.Addr())
	})
	return found
}

// Failover makes a replica the primary at once, without asking the others (CLUSTER FAILOVER
// TAKEOVER).
func (c *Cluster) Failover(replica *Server) {
	c.t.Helper()
	c.do(replica.Client(), "CLUSTER", "FAILOVER", "TAKEOVER")
}

// Move moves the slot of a key to another primary while the cluster is in use, as redis-cli
// --cluster reshard does. during is called three times while the slot is on its way: when none,
// some, and all of its keys have moved.
func (c *Cluster) Move(key string, to *Server, during func(moved string)) {
	c.t.Helper()
	ctx := c.t.Context()
	from := c.PrimaryOf(key)
	source, target := from.Client(), to.Client()
	slot, err := source.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		c.t.Fatalf("redistest: slot of key %q: %v", key, err)
	}
	fromID, toID := c.id(source), c.id(target)
	c.do(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	c.do(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	during("none")
	for half := range 2 {
		keys, err := source.ClusterGetKeysInSlot(ctx, int(slot), 100_000).Result()
		if err != nil {
			c.t.Fatalf("redistest: keys of slot %d: %v", slot, err)
		}
		if half == 0 {
			keys = keys[:len(keys)/2]
		}
		for _, k := range keys {
			args := []any{"MIGRATE", "127.0.0.1", to.port, k, 0, 10_000}
			if to.cfg.password != "" {
				args = append(args, "AUTH", to.cfg.password)
			}
			c.do(source, args...)
		}
		during([]string{"some", "all"}[half])
	}
	c.do(target, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	c.do(source, "CLUSTER", "SETSLOT", slot, "NODE", toID)
}

// id is how a node is called in the cluster.
func (c *Cluster) id(client *redis.Client) string {
	c.t.Helper()
	id, err := client.ClusterMyID(c.t.Context()).Result()
	if err != nil {
		c.t.Fatalf("redistest: id of cluster node %s: %v", client.Options().Addr, err)
	}
	return id
}

// clusterHas reports whether CLUSTER INFO of a node has a line.
func clusterHas(ctx context.Context, client *redis.Client, line string) error {
	info, err := client.ClusterInfo(ctx).Result()
	if err == nil && !strings.Contains(info, line) {
		err = fmt.Errorf("no %q in CLUSTER INFO:\n%s", line, info)
	}
	return err
}

// clusterPaired reports whether a node sees each primary with a replica, and, where
// it is a replica itself, whether it is in step.
func clusterPaired(ctx context.Context, client *redis.Client) error {
	shards, err := client.ClusterShards(ctx).Result()
	if err != nil {
		return err
	}
	if len(shards) != clusterPrimaries {
		return fmt.Errorf("%d shards, want %d", len(shards), clusterPrimaries)
	}
	for _, shard := range shards {
		online := 0
		for _, node := range shard.Nodes {
			if node.Health == "online" {
				online++
			}
		}
		if online != 2 || len(shard.Slots) != 1 {
			return fmt.Errorf("a shard of %d ranges of slots has %d nodes online, want 1 and 2", len(shard.Slots), online)
		}
	}
	info, err := client.Info(ctx, "replication").Result()
	if err == nil && strings.Contains(info, "role:slave") && !strings.Contains(info, "master_link_status:up") {
		err = fmt.Errorf("replica not in step:\n%s", info)
	}
	return err
}
