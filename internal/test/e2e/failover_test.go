package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

const (
	// outageTarget is how long a failover should keep producers waiting, and outageMost is what
	// only a broken system reaches.
	outageTarget = 5 * time.Second
	outageMost   = 30 * time.Second

	crowdRate = 20 // starts of each tenant a second, and about as many offers
)

// crowd offers jobs of several tenants until it is stopped, each tenant's one after the other. An
// offer whose outcome is not known is made again under the same id until it is, as a producer
// should.
type crowd struct {
	r       *rig
	begun   int64   // by the history's clock
	weather *stalls // a machine on which servers are started and killed keeps some processes from running
	quit    chan struct{}
	members sync.WaitGroup

	mu          sync.Mutex // guards what follows
	unconfirmed int
	failed      int
	last        error
}

// Tenants whose jobs replicas must have before they are accepted, and tenants that take the
// primary's word.
var sureTenants, fastTenants = []string{"sure-1", "sure-2"}, []string{"fast-1", "fast-2"}

// gather starts a crowd, in which the sure tenants ask for so many replicas. stop ends it.
func (r *rig) gather(replicas int) *crowd {
	r.t.Helper()
	c := &crowd{r: r, begun: history.Now(), weather: watch(r.t), quit: make(chan struct{})}
	for _, tenants := range [][]string{sureTenants, fastTenants} {
		opts := shaper.ClientConfig{}
		if tenants[0] == sureTenants[0] {
			opts.Replicas, opts.ReplicaTimeout = replicas, 500*time.Millisecond
		}
		rdb, err := redisurl.Open(r.url, redisurl.Config{})
		r.must(err)
		r.t.Cleanup(func() { rdb.Close() })
		client, err := shaper.NewClient(rdb, r.name, opts)
		r.must(err)
		for _, tenant := range tenants {
			r.tenant(tenant, shaper.Policy{Rate: rate(crowdRate).Rate, Depth: 10_000})
			c.members.Go(func() { c.produce(client, tenant) })
		}
	}
	r.t.Cleanup(c.stop)
	return c
}

func (c *crowd) produce(client *shaper.Client, tenant string) {
	for n := 0; ; n++ {
		select {
		case <-c.quit:
			return
		case <-time.After(time.Second / crowdRate):
		}
		e := history.Event{Kind: history.Offer, Tenant: tenant, ID: fmt.Sprintf("%s-%d-%05d", tenant, c.begun, n)}
		c.record(e)
		for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			result, err := client.Offer(ctx, shaper.Spec{Tenant: tenant, ID: e.ID, Type: "play", Payload: play{For: 5 * time.Millisecond}.bytes()})
			cancel()
			if err == nil {
				if result.Status != shaper.Accepted {
					c.r.t.Errorf("job %s: %+v, want it accepted", e.ID, result)
				}
				c.record(answer(e, result))
				break
			}
			c.note(err)
			if !errors.Is(err, shaper.ErrStore) || time.Since(begun) > patience {
				c.r.t.Errorf("job %s is not accepted: %v", e.ID, err)
				return
			}
		}
	}
}

func (c *crowd) record(e history.Event) {
	if err := c.r.rec.Record(e); err != nil {
		c.r.t.Error(err)
	}
}

func (c *crowd) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = err
	if alone := (*shaper.UnconfirmedError)(nil); errors.As(err, &alone) {
		c.unconfirmed++
	} else {
		c.failed++
	}
}

// stop ends the crowd once what it offers has been answered. It may be called twice.
func (c *crowd) stop() {
	select {
	case <-c.quit:
	default:
		close(c.quit)
	}
	c.members.Wait()
}

// served waits until each of some tenants has had some jobs accepted and started that were offered
// after this call.
func (r *rig) served(tenants []string) {
	r.t.Helper()
	const n = 5
	at := history.Now()
	r.await(fmt.Sprintf("%d jobs of each of %v", n, tenants), func(h history.History) bool {
		offered, counts := map[string]bool{}, map[string]int{}
		for _, e := range h.Since(at) {
			if e.Kind == history.Offer {
				offered[e.ID] = true
			} else if offered[e.ID] {
				counts[string(e.Kind)+e.Tenant]++
			}
		}
		return !slices.ContainsFunc(tenants, func(tenant string) bool {
			return counts[string(history.Accept)+tenant] < n || counts[string(history.Start)+tenant] < n
		})
	})
}

// longest is the longest time since an instant in which nothing of a kind happened to some tenants.
func longest(h history.History, since int64, kind history.Kind, tenants []string) time.Duration {
	last, most := since, int64(0)
	for _, e := range h.Since(since).Of(kind) {
		if slices.Contains(tenants, e.Tenant) {
			last, most = e.At, max(most, e.At-last)
		}
	}
	return time.Duration(most)
}

// idle waits until some tenants are served again after what was done at an instant, and prints and
// returns how long none of them was.
func (r *rig) idle(what string, at int64, tenants []string) time.Duration {
	r.t.Helper()
	r.served(tenants)
	h := r.history()
	accepted, started := longest(h, at, history.Accept, tenants), longest(h, at, history.Start, tenants)
	r.t.Logf("%s: nothing accepted for %v, nothing started for %v", what, accepted.Round(10*time.Millisecond), started.Round(10*time.Millisecond))
	return max(accepted, started)
}

// outage is idle, and fails the test where it took far too long.
func (r *rig) outage(what string, at int64, tenants []string) {
	r.t.Helper()
	if took := r.idle(what, at, tenants); took > outageMost {
		r.t.Errorf("%s: an outage of %v, want %v, and never more than %v", what, took, outageTarget, outageMost)
	}
}

// twoMasters is how long a master that was demoted alive may go on after the other one was made.
// Both grant slots meanwhile, and nobody can promise anything about that.
const twoMasters = 5 * time.Second

// judged ends a crowd, waits until Redis has nothing left to run, prints what was lost and doubled,
// and fails the test for what must not happen: starts of a tenant too close, in or across slots,
// jobs that nobody offered, and lost jobs of tenants whose replicas had to have them. What is too
// close while there were two masters, from the instants demoted on, is only counted.
func (r *rig) judged(c *crowd, demoted ...int64) {
	r.t.Helper()
	c.stop()
	r.eventually("nothing is left in Redis", func() bool {
		s, err := r.admin.Stats(context.Background(), false)
		return err == nil && s.Level()+s.Out+s.Running == 0
	})
	h := r.history().Since(c.begun)
	rule := perSecond(crowdRate)
	rule.Slack += c.weather.longest()
	both, rest := 0, []history.Violation{}
	for _, v := range slices.Concat(history.Spacing(h, rule), history.Windows(h, rule), history.Slots(h, rule)) {
		if slices.ContainsFunc(demoted, func(at int64) bool { return at <= v.At && v.At < at+int64(twoMasters) }) {
			both++
		} else {
			rest = append(rest, v)
		}
	}
	r.t.Logf("too close while there were two masters: %d", both)
	refuse(r.t, rest, history.OnTime(h, rule), history.Unexpected(h))
	for _, tenants := range [][]string{sureTenants, fastTenants} {
		lost, again, accepted := []history.Violation{}, 0, 0
		for _, tenant := range tenants {
			of := h.Tenant(tenant)
			lost = append(lost, history.Lost(of)...)
			again += len(history.Duplicated(of))
			accepted += len(of.Of(history.Accept))
		}
		r.t.Logf("%v: %d accepted, %d lost, %d starts doubled", tenants, accepted, len(lost), again)
		if tenants[0] == sureTenants[0] {
			refuse(r.t, lost)
		}
	}
	r.t.Logf("offers that failed and were made again: %d not confirmed by a replica, %d for another reason (the last: %v)", c.unconfirmed, c.failed, c.last)
}

// noneSaid fails the test if a process logged something.
func (r *rig) noneSaid(what string, all []*process) {
	r.t.Helper()
	for _, p := range all {
		if text, err := os.ReadFile(p.stderr); err != nil || strings.Contains(string(text), what) {
			r.t.Errorf("process %d said %s (%v)", p.pid(), what, err)
		}
	}
}

// TestSentinelFailover kills the master of a Sentinel set under load, and then has the sentinels
// demote one that lives.
func TestSentinelFailover(t *testing.T) {
	notShort(t)
	if os.Getenv(storeVar) != "" {
		t.Skip("is about Sentinel")
	}
	t.Parallel()
	set := redistest.StartSentinel(t, redistest.AOF())
	r := newRigAt(t, set.URL())
	r.startAll(slices.Repeat([]role{{Scheduler: true, TicketTTL: time.Second, Worker: true}}, 2)...)
	every := slices.Concat(sureTenants, fastTenants)

	c := r.gather(1)
	r.served(every)
	killed := set.Master()
	killed.Kill()
	r.outage("master killed", history.Now(), every)
	r.eventually("another master is named", func() bool { return set.Master() != killed })
	r.judged(c)

	// While the old master lives it goes on until it is told, and so does the replica that was not
	// chosen: either one's word is worth nothing. So both are asked.
	killed.Restart()
	r.eventually("the old master is a replica", func() bool { return set.InStep() == nil })
	c = r.gather(2)
	r.served(every)
	demoted := set.Master()
	at := history.Now()
	set.Failover()
	r.eventually("another master", func() bool { return set.Master() != demoted })
	r.eventually("the demoted master is a replica", func() bool { return set.InStep() == nil })
	r.outage("master demoted", at, every)
	r.judged(c, at)
}

// TestClusterFailover kills the node of a downstream under load, gives its slot to a replica by
// force, and moves it to another node.
func TestClusterFailover(t *testing.T) {
	notShort(t)
	if os.Getenv(storeVar) != "" {
		t.Skip("needs a cluster of its own")
	}
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.AOF(), redistest.FailsOver())
	r := newRigAt(t, cluster.URL())
	daemons := r.startAll(
		role{Scheduler: true, TicketTTL: time.Second, Worker: true, checked: true}, role{Scheduler: true, TicketTTL: time.Second, Worker: true},
	)
	every := slices.Concat(sureTenants, fastTenants)
	c := r.gather(1)
	r.served(every)

	key := "{" + r.name + "}"
	killed := cluster.PrimaryOf(key)
	killed.Kill()
	at := history.Now()
	// The replica is alone then: no job that another replica must have is accepted.
	r.outage("node killed", at, fastTenants)
	killed.Restart()
	r.idle("node killed, for those who need a replica, until it was back", at, sureTenants)

	at = history.Now()
	cluster.Failover(cluster.ReplicaOf(cluster.PrimaryOf(key)))
	demoted := at
	r.outage("replica takes over by force", at, every)
	cluster.ReplicaOf(cluster.PrimaryOf(key))

	target := cluster.Nodes[slices.IndexFunc(cluster.Nodes[:3], func(s *redistest.Server) bool { return s != cluster.PrimaryOf(key) && s != killed })]
	at = history.Now()
	cluster.Move(key, target, func(string) {})
	r.outage("slot moved", at, every)
	if cluster.PrimaryOf(key) != target {
		t.Error("the slot has not moved")
	}
	r.noneSaid("CROSSSLOT", daemons)
	r.judged(c, demoted)
}

// TestReplicaBehindIsPromoted stalls the way to the only replica for a while, in which jobs are
// offered, and then loses the primary. Where the primary's word was enough, what it accepted
// meanwhile is gone; where the replica had to have a job, none was accepted.
func TestReplicaBehindIsPromoted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newServerRig(t)
	link := redistest.StartLink(t, r.server.Addr())
	replica := redistest.StartReplica(t, r.server, link.Addr())
	sure, err := shaper.NewClient(r.rdb, r.name, shaper.ClientConfig{Replicas: 1, ReplicaTimeout: 500 * time.Millisecond})
	r.must(err)
	patient, err := shaper.NewClient(r.rdb, r.name, shaper.ClientConfig{Replicas: 1, ReplicaTimeout: 30 * time.Second})
	r.must(err)
	offerTo := func(client *shaper.Client, tenant string, n int) (accepted []string) {
		specs := make([]shaper.Spec, n)
		for i := range specs {
			specs[i] = shaper.Spec{Tenant: tenant, Type: "play", Payload: play{}.bytes()}
		}
		for _, o := range client.OfferMany(ctx, specs) {
			if alone := (*shaper.UnconfirmedError)(nil); o.Err != nil && !errors.As(o.Err, &alone) {
				t.Fatal(o.Err)
			}
			if o.Err == nil && o.Result.Status == shaper.Accepted {
				accepted = append(accepted, o.Result.ID)
			}
		}
		return accepted
	}
	const jobs = 500
	before := map[string][]string{"fast": offerTo(r.client, "fast", jobs)}
	before["sure"] = offerTo(patient, "sure", jobs) // the replica has these, so it has those from before
	link.Stall()
	during := map[string][]string{"sure": offerTo(sure, "sure", jobs), "fast": offerTo(r.client, "fast", jobs)}
	r.server.Kill()
	link.Close()
	replica.Promote()
	after, err := shaper.NewClient(replica.Client(), r.name, shaper.ClientConfig{})
	r.must(err)
	lost := map[string]int{}
	for _, accepted := range []map[string][]string{before, during} {
		for tenant, ids := range accepted {
			for _, id := range ids {
				if _, err := after.Find(ctx, tenant, id); errors.Is(err, shaper.ErrNotFound) {
					lost[tenant]++
				} else {
					r.must(err)
				}
			}
		}
	}
	t.Logf("accepted while the replica was behind, and lost: %d of %d by the primary's word, %d of %d with wait: 1",
		lost["fast"], len(during["fast"]), lost["sure"], len(during["sure"]))
	if len(before["sure"]) != jobs || len(before["fast"]) != jobs || len(during["fast"]) != jobs {
		t.Errorf("accepted %d, %d and %d of %d each", len(before["sure"]), len(before["fast"]), len(during["fast"]), jobs)
	}
	if lost["sure"] != 0 || len(during["sure"]) != 0 {
		t.Errorf("with wait: 1 %d were accepted that no replica had, and %d lost; want none", len(during["sure"]), lost["sure"])
	}
	if lost["fast"] != jobs {
		t.Errorf("%d lost by the primary's word, want what it accepted meanwhile, %d: was the way stalled?", lost["fast"], jobs)
	}
}
