package redistest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestSentinelFailover(t *testing.T) {
	testenv.Long(t, "takes some 5 s")
	t.Parallel()
	ctx := t.Context()
	set := StartSentinel(t, AOF(), Password("sesame"))
	client := set.Client()
	if err := client.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Wait(ctx, 2, 0).Result(); n != 2 {
		t.Fatalf("WAIT 2 = %d, %v; want both replicas", n, err)
	}
	old := set.Master()
	if old != set.Servers[0] {
		t.Errorf("master at the start is %s, want the first server %s", old.Addr(), set.Servers[0].Addr())
	}
	old.Kill()
	eventually(t, "a write on the new master", func() error { return client.Set(ctx, "k2", "v", 0).Err() })
	// The sentinel that is asked need not be the one that led the failover.
	eventually(t, "another master is named", func() error {
		if set.Master() == old {
			return errors.New("the killed master is still the master")
		}
		return nil
	})
	if got, err := client.Get(ctx, "k").Result(); got != "v" {
		t.Errorf("what was written before the failover: %q, %v", got, err)
	}
}

func TestClusterFailover(t *testing.T) {
	testenv.Long(t, "takes some 7 s")
	t.Parallel()
	ctx := t.Context()
	cluster := StartCluster(t, AOF(), Password("sesame"), FailsOver())
	client := cluster.Client()
	for i := range 100 { // all three primaries get some
		if err := client.Set(ctx, fmt.Sprint(i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	node, err := client.MasterForKey(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	conn := node.Conn() // WAIT speaks of the writes of its own connection
	defer conn.Close()
	if err := conn.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Wait(ctx, 1, 0).Result(); n != 1 {
		t.Fatalf("WAIT 1 = %d, %v; want the replica", n, err)
	}
	old := cluster.PrimaryOf("k")
	old.Kill()
	eventually(t, "a write on the new primary", func() error { return client.Set(ctx, "{k}2", "v", 0).Err() })
	if got, err := client.Get(ctx, "k").Result(); got != "v" {
		t.Errorf("what was written before the failover: %q, %v", got, err)
	}
	if cluster.PrimaryOf("k") == old {
		t.Error("the killed primary still serves its keys")
	}
	// Keys of different slots must not meet in one command: this is a real cluster.
	if err := client.Eval(ctx, "return 1", []string{"a", "b"}).Err(); err == nil {
		t.Error("a script with keys of two slots was let through")
	}
}
