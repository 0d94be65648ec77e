package shaper

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// waitBriefly is how long these tests wait for replicas that do not answer.
const waitBriefly = 200 * time.Millisecond

// confirming is a client whose jobs one replica must have.
func (w *world) confirming(timeout time.Duration) *Client {
	return newClient(w.q, ClientConfig{Replicas: 1, ReplicaTimeout: timeout})
}

// unconfirmed fails the test unless an offer was stored and not confirmed, and returns its error.
func unconfirmed(t *testing.T, what string, r Result, err error) *UnconfirmedError {
	t.Helper()
	var e *UnconfirmedError
	if !errors.As(err, &e) || !errors.Is(err, ErrStore) || e.Got != 0 || e.Want != 1 || e.ID == "" || r != (Result{}) {
		t.Fatalf("%s: %+v, %v; want a job that no replica confirmed", what, r, err)
	}
	return e
}

// With Replicas a job counts as accepted once a replica has it. Until then it is stored, but
// nothing is promised, not even if it is offered again and known; once the replica has it, it is a
// duplicate. A refusal needs no replica.
func TestAcceptedOnceAReplicaHasIt(t *testing.T) {
	testenv.Long(t, "starts a primary and its replicas")
	t.Parallel()
	ctx := t.Context()
	server := redistest.Start(t)
	replica := redistest.StartReplica(t, server, "")
	w := newWorld(t, server.Client())
	w.set("full", Policy{Depth: 1})
	sure, brief := w.confirming(testenv.Patience), w.confirming(waitBriefly)

	for _, s := range []Spec{{Tenant: "full", ID: "x", Type: "x"}, {Tenant: "a", Type: "x"}} {
		if r, err := sure.Offer(ctx, s); err != nil || r.Status != Accepted || r.Duplicate {
			t.Fatalf("the replica is there: %+v, %v", r, err)
		}
	}
	replica.Pause()
	begun := time.Now()
	r, err := brief.Offer(ctx, Spec{Tenant: "a", ID: "named", Type: "x"})
	unconfirmed(t, "the replica stands still", r, err)
	if took := time.Since(begun); took < waitBriefly {
		t.Errorf("the replica was given %v, want %v", took, waitBriefly)
	}
	r, err = brief.Offer(ctx, Spec{Tenant: "a", ID: "named", Type: "x"})
	unconfirmed(t, "offered again", r, err)
	r, err = brief.Offer(ctx, Spec{Tenant: "a", Type: "x"})
	told := unconfirmed(t, "without an id", r, err)
	if !strings.Contains(err.Error(), told.ID) {
		t.Errorf("%v: does not tell the id", err)
	}
	if r, err := brief.Offer(ctx, Spec{Tenant: "full", Type: "x"}); err != nil || r.Reason != RefusedFull {
		t.Errorf("a full bucket: %+v, %v", r, err)
	}
	out := brief.OfferMany(ctx, []Spec{{Tenant: "b", ID: "b1", Type: "x"}, {Tenant: "full", Type: "x"}, {Tenant: "b"}, {Tenant: "c", ID: "c1", Type: "x"}})
	unconfirmed(t, "in a batch", out[0].Result, out[0].Err)
	unconfirmed(t, "in a batch", out[3].Result, out[3].Err)
	if out[1].Err != nil || out[1].Result.Reason != RefusedFull || !errors.Is(out[2].Err, ErrInvalid) {
		t.Errorf("beside them: %+v, %+v", out[1], out[2])
	}

	replica.Continue()
	w.must(w.rdb.ScriptFlush(ctx).Err())
	for _, id := range []string{"named", told.ID} {
		if r, err := sure.Offer(ctx, Spec{Tenant: "a", ID: id, Type: "x"}); err != nil || r.Status != Accepted || !r.Duplicate {
			t.Errorf("%s, offered again when the replica is back: %+v, %v", id, r, err)
		}
	}
	if n, err := w.rdb.Exists(ctx, w.q.MarkKey()).Result(); err != nil || n != 1 {
		t.Errorf("nothing was written before the replica was asked about a duplicate (%d, %v), so it may be about nothing", n, err)
	}
}

// A connection that may take less time to answer than the replicas is given more.
func TestReplicasMayTakeLongerThanAnAnswer(t *testing.T) {
	testenv.Long(t, "lasts longer than an answer may take, again and again")
	t.Parallel()
	server := redistest.Start(t)
	redistest.StartReplica(t, server, "").Pause()
	w := newWorld(t, redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: time.Second, ContextTimeoutEnabled: true}))
	t.Cleanup(func() { w.rdb.Close() })
	r, err := w.confirming(3*time.Second).Offer(t.Context(), Spec{Tenant: "a", Type: "x"})
	if e := unconfirmed(t, "the replica stands still", r, err); e.Err != nil {
		t.Errorf("%v; want the replicas to be asked to the end", e)
	}
}

func TestWaitNeedsAConnection(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true})
	defer ring.Close()
	for name, f := range map[string]func() (*Client, error){
		"wait":    func() (*Client, error) { return NewClient(ring, "d", ClientConfig{Replicas: 1}) },
		"101":     func() (*Client, error) { return NewClient(ring, "d", ClientConfig{Replicas: 101}) },
		"timeout": func() (*Client, error) { return NewClient(ring, "d", ClientConfig{ReplicaTimeout: time.Microsecond}) },
	} {
		if _, err := f(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want an error that names it", name, err)
		}
	}
}

// A server that has become a replica holds old data, and says so rather than answer from it,
// whether a job is known or there is no room.
func TestAReplicaDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := newWorld(t, server.Client())
	w.set("full", Policy{Depth: 1})
	w.offer(Spec{Tenant: "full", ID: "x"})
	w.pool("p", 1)
	g := w.start()
	w.offer(Spec{Tenant: "full", ID: "y"})
	demoted := redistest.StartReplica(t, server, "")
	q := w.q
	q.RDB = demoted.Client()
	client, gate := newClient(q, ClientConfig{}), queue.NewGate(q)
	for what, call := range map[string]func() error{
		"known": func() error {
			_, err := client.Offer(t.Context(), Spec{Tenant: "full", ID: "y", Type: "test"})
			return err
		},
		"full":   func() error { _, err := client.Offer(t.Context(), Spec{Tenant: "full", Type: "test"}); return err },
		"cancel": func() error { _, err := client.Cancel(t.Context(), "full", "nobody"); return err },
		"gate": func() error {
			_, _, err := gate.Enter(t.Context(), queue.Ticket{Tenant: "full", ID: "z", Release: 1}, queue.NewToken("p"))
			return err
		},
		"finish": func() error {
			_, err := gate.Finish(t.Context(), &queue.Grant{Ticket: g.Ticket, Token: "p.other"}, queue.Finish{Ending: queue.EndOK})
			return err
		},
		"beat": func() error {
			_, err := gate.Beat(t.Context(), "p", 1, time.Minute, []queue.Held{{Grant: g}})
			return err
		},
	} {
		if err := call(); !errors.Is(err, ErrStore) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: %v, want READONLY", what, err)
		}
	}
}

// TestCluster runs the scripts on a real cluster.
func TestCluster(t *testing.T) {
	testenv.Long(t, "starts six servers")
	t.Parallel()
	cluster := redistest.StartCluster(t)
	t.Run("the model", func(t *testing.T) {
		client := cluster.Client()
		seen := &calls{}
		client.AddHook(seen)
		t.Run("random steps", func(t *testing.T) { runModel(t, client, 12) })
		w, ctx := newWorld(t, client), t.Context() // for the scripts that the players leave out
		w.set("a", Policy{})
		w.offers("a", 2)
		if faults, err := w.admin.Books(ctx, true); err != nil || len(faults) > 0 {
			t.Errorf("books: %v, %v", faults, err)
		}
		if _, err := w.admin.Stats(ctx, true); err != nil {
			t.Error(err)
		}
		if j, err := w.client.Find(ctx, "a", "a2"); err != nil || j.Position != 2 {
			t.Errorf("%+v, %v", j, err)
		}
		if n, err := w.admin.Purge(ctx, "a"); err != nil || n != 2 {
			t.Errorf("%d purged, %v", n, err)
		}
		if err := w.admin.Remove(ctx, "a"); err != nil {
			t.Error(err)
		}
		if _, err := w.admin.Apply(ctx, DownstreamPolicy{}, map[string]Policy{"a": {}}); err != nil {
			t.Error(err)
		}
		seen.all(t)
	})
	t.Run("a slot that moves", func(t *testing.T) { moving(t, cluster) })
	t.Run("replicas", func(t *testing.T) { clusterConfirms(t, cluster) })
}

// moving moves the slot of a downstream to another node. Calls that are made meanwhile either see
// all the data or fail; nothing is lost, and nothing begins anew on the node where not everything
// has arrived.
func moving(t *testing.T, cluster *redistest.Cluster) {
	ctx := t.Context()
	w := newWorld(t, cluster.Client())
	w.set("a", Policy{Rate: rate(1, time.Second)})
	w.pool("p", 9)
	w.offers("a", 20)
	g := w.start()
	w.offers("b", 5)
	w.offer(Spec{Tenant: "b", ID: "later", Delay: time.Hour})
	before := w.dump()
	var to *redistest.Server
	for _, node := range cluster.Nodes[:3] {
		if node != cluster.PrimaryOf(w.q.Prefix) {
			to = node
		}
	}
	confirming := w.confirming(testenv.Patience)
	stages := 0
	cluster.Move(w.q.Prefix, to, func(moved string) {
		stages++
		for what, call := range map[string]func() error{
			"offer": func() error { _, err := w.client.Offer(ctx, Spec{Tenant: "a", ID: "new", Type: "test"}); return err },
			"waiting": func() error {
				ctx, cancel := context.WithTimeout(ctx, waitBriefly)
				defer cancel()
				_, err := confirming.Offer(ctx, Spec{Tenant: "a", ID: "new", Type: "test"})
				return err
			},
			"unknown": func() error { _, err := w.client.Offer(ctx, Spec{Tenant: "c", ID: "new", Type: "test"}); return err },
			"find":    func() error { _, err := w.client.Find(ctx, "a", "a2"); return err },
			"gate": func() error {
				_, _, err := w.gate.Enter(ctx, queue.Ticket{Tenant: "a", ID: "a2", Release: 1}, queue.NewToken("p"))
				return err
			},
			"finish":   func() error { _, err := w.gate.Finish(ctx, g, queue.Finish{Ending: queue.EndOK}); return err },
			"policies": func() error { return w.admin.SetTenant(ctx, "a", Policy{Rate: rate(5, time.Second)}) },
		} {
			if err := call(); !errors.Is(err, ErrStore) {
				t.Errorf("%s, while %s of the keys have moved: %v, want it to fail", what, moved, err)
			}
		}
	})
	if stages != 3 {
		t.Errorf("looked at %d stages, want 3", stages)
	}
	var after string
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) { // until the client has heard where the slot is
		r, err := w.client.Offer(ctx, Spec{Tenant: "b", ID: "b5", Type: "test"})
		if server, at := primary(ctx, w.q); err == nil && at == nil && server.Options().Addr == to.Addr() {
			if r.Status != Accepted || !r.Duplicate {
				t.Errorf("a job from before: %+v", r)
			}
			after = w.dump()
			break
		}
		if time.Since(begun) > testenv.Patience {
			t.Fatalf("the slot has moved, and: %v", err)
		}
	}
	if before != after || !strings.Contains(before, "a20") {
		t.Errorf("moved:\n%s\nwas:\n%s", after, before)
	}
	if became, _ := w.finish(g, queue.Finish{Ending: queue.EndOK}); became != "done" {
		t.Errorf("what ran meanwhile: %s", became)
	}
}

// clusterConfirms offers jobs that replicas must have, while they are there, when one is killed,
// and after a node has changed its role.
func clusterConfirms(t *testing.T, cluster *redistest.Cluster) {
	ctx := t.Context()
	client := cluster.Client()
	for i := range 6 { // some for each node
		w := newWorld(t, client)
		for _, o := range w.confirming(testenv.Patience).OfferMany(ctx, []Spec{{Tenant: "a", Type: "x"}, {Tenant: "b", Type: "x"}}) {
			if o.Err != nil || o.Result.Status != Accepted {
				t.Fatalf("downstream %d: %+v", i, o)
			}
		}
	}
	w := newWorld(t, client)
	sure, brief := w.confirming(testenv.Patience), w.confirming(waitBriefly)
	primary := cluster.PrimaryOf(w.q.Prefix)
	replica := cluster.ReplicaOf(primary)
	replica.Pause()
	r, err := brief.Offer(ctx, Spec{Tenant: "a", ID: "x", Type: "x"})
	unconfirmed(t, "the replica stands still", r, err)
	replica.Continue()
	if r, err := sure.Offer(ctx, Spec{Tenant: "a", ID: "x", Type: "x"}); err != nil || !r.Duplicate {
		t.Errorf("it is back: %+v, %v", r, err)
	}

	cluster.Failover(replica)
	again := newClient(w.q, ClientConfig{Replicas: 1})
	for begun := time.Now(); ; {
		r, err := again.Offer(ctx, Spec{Tenant: "a", ID: "x", Type: "x"})
		if err == nil && r.Duplicate {
			break
		}
		if err != nil && !errors.Is(err, ErrStore) || err == nil || time.Since(begun) > testenv.Patience {
			t.Fatalf("after the node changed its role: %+v, %v", r, err)
		}
	}
	if now := cluster.PrimaryOf(w.q.Prefix); now != replica {
		t.Errorf("%s answers, want %s", now.Addr(), replica.Addr())
	}
}

// calls notes which scripts a client calls.
type calls struct{ hashes sync.Map }

func (c *calls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[0] == "evalsha" {
			c.hashes.Store(args[1], true)
		}
		return next(ctx, cmd)
	}
}

func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// all fails the test unless every script was called.
func (c *calls) all(t *testing.T) {
	for name, s := range map[string]*queue.Script{
		"enqueue": queue.EnqueueScript, "release": queue.ReleaseScript, "gate": queue.GateScript, "finish": queue.FinishScript, "beat": queue.BeatScript,
		"giveback": queue.GivebackScript, "cancel": queue.CancelScript, "dead": queue.DeadScript, "purge": queue.PurgeScript, "policy": queue.PolicyScript,
		"config": queue.ConfigScript, "pause": queue.PauseScript, "forget": queue.ForgetScript, "find": queue.FindScript, "stats": queue.StatsScript,
		"compare": queue.CompareScript, "mend": queue.MendScript,
	} {
		if _, called := c.hashes.Load(s.Hash()); !called {
			t.Errorf("%s has not been called on a cluster", name)
		}
	}
}
