package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

// rig is what a test needs: a downstream that nobody else uses, a producer's and an operator's view
// of it, and the history into which the test and all its processes write.
type rig struct {
	t      *testing.T
	server *redistest.Server // nil where the store is not a server of the test's own
	url    string            // of the store
	name   string            // of the downstream
	rdb    redis.UniversalClient
	client *shaper.Client
	admin  *shaper.Admin
	rec    *history.Recorder
	path   string // of the history
	reader history.Reader

	weather *stalls // since the rig was made
}

// notShort leaves a test that takes longer than three seconds out of the short ones.
func notShort(t *testing.T) {
	t.Helper()
	testenv.Long(t, "takes more than 3 s")
}

// newRig is a rig on a Redis of its own, or on the cluster that the whole run is about, see
// storeVar.
func newRig(t *testing.T) *rig {
	t.Helper()
	if url := os.Getenv(storeVar); url != "" {
		return newRigAt(t, url)
	}
	return newServerRig(t)
}

// newServerRig is a rig on a server of its own, for a test that does things to the server.
func newServerRig(t *testing.T, opts ...redistest.Option) *rig {
	t.Helper()
	if os.Getenv(storeVar) != "" {
		t.Skip("is about a server of its own, and has been run on one")
	}
	server := redistest.Start(t, opts...)
	r := newRigAt(t, server.URL())
	r.server = server
	return r
}

var downstreams atomic.Int64

// newRigAt is a rig on the store of a URL, opened as our programs open it.
func newRigAt(t *testing.T, url string) *rig {
	t.Helper()
	// A store may be shared by processes, one after the other, see rerun.
	r := &rig{t: t, url: url, name: fmt.Sprintf("d%d-%d", os.Getpid(), downstreams.Add(1)), path: filepath.Join(t.TempDir(), "history"), weather: watch(t)}
	var err error
	r.rdb, err = redisurl.Open(unhurried(url), redisurl.Config{})
	r.must(err)
	t.Cleanup(func() { r.rdb.Close() })
	r.client, err = shaper.NewClient(r.rdb, r.name, shaper.ClientConfig{})
	r.must(err)
	r.admin, err = shaper.NewAdmin(r.rdb, r.name)
	r.must(err)
	r.rec, err = history.Open(r.path)
	r.must(err)
	t.Cleanup(func() { r.rec.Close() })
	r.must(r.reader.Open(r.path))
	t.Cleanup(func() { r.reader.Close() })
	return r
}

// unhurried is a server's URL for tests in which the server does not go away: on a busy machine a
// crowd of producers waits longer for an answer than it should on a connection whose other side may
// be gone.
func unhurried(url string) string {
	if !strings.HasPrefix(url, "redis://") {
		return url
	}
	return url + "?read_timeout=1m&write_timeout=1m&dial_timeout=1m"
}

// placed is a role in this rig: at its store, unless the role names another way to it, on its
// downstream, with its history.
func (r *rig) placed(role role) role {
	role.Redis, role.Downstream, role.History = cmp.Or(role.Redis, r.url), r.name, r.path
	return role
}

// must ends the test at an error that is not its subject.
func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// tenant sets a tenant's policy.
func (r *rig) tenant(name string, p shaper.Policy) {
	r.t.Helper()
	r.must(r.admin.SetTenant(context.Background(), name, p))
}

// downstream sets the downstream's policy.
func (r *rig) downstream(p shaper.DownstreamPolicy) {
	r.t.Helper()
	r.must(r.admin.SetDownstream(context.Background(), p))
}

// daemon runs a daemon in the test's own process until the test ends.
func (r *rig) daemon(role role) {
	r.t.Helper()
	role = r.placed(role)
	var d *daemon
	var err error
	for begun := time.Now(); ; { // a start waits no longer for Redis than a supervisor would
		d, err = startDaemon(context.Background(), role, cmp.Or(role.log, slog.New(slog.NewTextHandler(r.t.Output(), nil))))
		if !errors.Is(err, shaper.ErrStore) || time.Since(begun) > patience {
			break
		}
	}
	r.must(err)
	r.t.Cleanup(d.stop)
}

// offer offers n jobs of a tenant at once; all must be accepted. Their ids begin with the tenant's
// name.
func (r *rig) offer(tenant string, n int, p play) {
	r.t.Helper()
	specs := make([]shaper.Spec, n)
	stamp := history.Now()
	for i := range specs {
		specs[i] = shaper.Spec{Tenant: tenant, ID: fmt.Sprintf("%s-%d-%05d", tenant, stamp, i), Type: "play", Payload: p.bytes()}
		r.must(r.rec.Record(history.Event{Kind: history.Offer, Tenant: tenant, ID: specs[i].ID}))
	}
	for i, o := range r.client.OfferMany(context.Background(), specs) {
		r.must(o.Err)
		if o.Result.Status != shaper.Accepted {
			r.t.Fatalf("job %d of %d: %+v, want accepted", i, n, o.Result)
		}
		r.must(r.rec.Record(answer(history.Event{Tenant: tenant, ID: specs[i].ID}, o.Result)))
	}
}

// offerOne offers one job, and returns its id once it is accepted.
func (r *rig) offerOne(s shaper.Spec, p play) string {
	r.t.Helper()
	if s.ID == "" {
		s.ID = shaper.NewID()
	}
	s.Type, s.Payload = "play", p.bytes()
	result, err := offer(context.Background(), r.client, r.rec, s)
	r.must(err)
	if result.Status != shaper.Accepted {
		r.t.Fatalf("%+v, want accepted", result)
	}
	return s.ID
}

// history returns what has been recorded so far.
func (r *rig) history() history.History {
	r.t.Helper()
	h, err := r.reader.More()
	r.must(err)
	return h
}

// await waits until the history satisfies a condition, and returns it. what says what is waited
// for.
func (r *rig) await(what string, condition func(history.History) bool) history.History {
	r.t.Helper()
	seen := -1
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		h := r.history()
		if len(h) != seen && condition(h) { // a history that has not grown is unchanged
			return h
		}
		seen = len(h)
		if time.Since(begun) > patience {
			stats, err := r.admin.Stats(context.Background(), true)
			r.t.Fatalf("%s: not within %v; %d starts, %d ends; %+v %v", what, patience, len(h.Of(history.Start)), len(h.Of(history.End)), stats, err)
		}
	}
}

// starts waits for the n-th start.
func (r *rig) starts(n int) history.History {
	r.t.Helper()
	return r.await(fmt.Sprintf("%d starts", n), func(h history.History) bool { return len(h.Of(history.Start)) >= n })
}

// drained waits until every accepted job has ended, in the history and in Redis, and returns the
// history.
func (r *rig) drained() history.History {
	r.t.Helper()
	r.await("every job has ended", func(h history.History) bool { return len(history.Lost(h)) == 0 })
	r.eventually("nothing is left in Redis", func() bool {
		s, err := r.admin.Stats(context.Background(), false)
		return err == nil && s.Level()+s.Out+s.Running == 0
	})
	return r.history()
}

// eventually waits until a condition holds.
func (r *rig) eventually(what string, condition func() bool) {
	r.t.Helper()
	for begun := time.Now(); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > patience {
			r.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// charged fails the test unless each job of a tenant is done, and was charged that many attempts.
func (r *rig) charged(h history.History, tenant string, attempts int) {
	r.t.Helper()
	for _, e := range h.Of(history.Accept).Tenant(tenant) {
		job, err := r.client.Find(context.Background(), tenant, e.ID)
		r.must(err)
		if job.State != shaper.StateDone || job.Charged != attempts {
			r.t.Errorf("job %s is %s, charged for %d attempts; want done, and %d", e.ID, job.State, job.Charged, attempts)
		}
	}
}

// refuse fails the test for violations that no stall of the machine excuses.
func (r *rig) refuse(lists ...[]history.Violation) {
	r.t.Helper()
	r.weather.refuse(r.t, len(r.history().Of(history.Start)), lists...)
}

// refuse fails the test for violations.
func refuse(t *testing.T, lists ...[]history.Violation) {
	t.Helper()
	const shown = 10
	n := 0
	for _, l := range lists {
		for _, v := range l {
			if n++; n <= shown {
				t.Error(v)
			}
		}
	}
	if n > shown {
		t.Errorf("and %d violations more", n-shown)
	}
}

// perSecond is the rule of a tenant with n starts a second and the default tolerance. A handler
// reads its clock with its first instruction; a millisecond is for the scheduler of a busy machine,
// which may come between that and the last look at the clock.
func perSecond(n int64) history.Rule {
	return history.Rule{Rate: buckets.PerSecond(n), Tolerance: shaper.DefaultTolerance, Slack: time.Millisecond}
}

// rate is a policy of n starts a second.
func rate(n int64) shaper.Policy { return shaper.Policy{Rate: buckets.PerSecond(n)} }
