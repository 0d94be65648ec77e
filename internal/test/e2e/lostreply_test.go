package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/test/faultproxy"
	"github.com/jobshaper/jobshaper/shaper"
)

// proxy is a network between Redis and whoever is given its URL, until the test ends.
func (r *rig) proxy() (*faultproxy.Proxy, string) {
	r.t.Helper()
	p, err := faultproxy.Start(r.server.Addr())
	r.must(err)
	r.t.Cleanup(p.Close)
	return p, "redis://" + p.Addr() + "/0"
}

// sprung waits until a trap has spoilt its request.
func (r *rig) sprung(what string, trap *faultproxy.Trap) {
	r.t.Helper()
	select {
	case <-trap.Sprung():
	case <-time.After(patience):
		r.t.Fatalf("%s: not called within %v", what, patience)
	}
}

// spoilt are the calls whose answers get lost: each is recognised by our scripts' hashes or asynq's
// keys.
func spoilt(downstream string) map[string]func([]byte) bool {
	tickets := "shaper-" + downstream // their asynq queue
	out := map[string]func([]byte) bool{
		"ticket": func(request []byte) bool {
			return bytes.Contains(request, []byte("asynq:{"+tickets+"}:t:")) &&
				bytes.Contains(request, []byte("asynq:{"+tickets+"}:pending")) &&
				!bytes.Contains(request, []byte("asynq:{"+tickets+"}:paused"))
		},
		"dequeue": faultproxy.Containing("asynq:{" + tickets + "}:paused"),
		"done":    faultproxy.Containing("asynq:{" + tickets + "}:processed\r"),
	}
	for name, script := range queue.Scripts {
		out[name] = faultproxy.Containing(script.Hash())
	}
	out["pipeline"] = out["enqueue"]
	return out
}

// TestLostReplies breaks the connection of each call of a script, and of asynq, under load: once
// before the request arrives, once before the answer does. The call is made again, by go-redis or
// by us; nothing is lost by that, and nothing is done twice.
//
// It runs by itself, as TestCrashPoints does.
func TestLostReplies(t *testing.T) {
	notShort(t)
	abreast(t, 6, slices.Sorted(maps.Keys(spoilt(""))), func(t *testing.T, call string) {
		const rounds, slowJobs, fastJobs = 2, 3, 12
		r := newServerRig(t)
		network, url := r.proxy()
		r.tenant("a", rate(20))
		r.tenant("b", rate(400))
		r.patiently(shaper.DefaultLease)
		daemon := both
		_, ofOperator := operations[call]
		if !ofOperator {
			daemon.Redis = url
		}
		r.daemon(daemon)
		r.bury()
		o, err := newOperator(r.placed(role{Redis: url}), redisurl.Config{})
		r.must(err)
		defer o.close()
		load := func() {
			r.offer("a", slowJobs, play{For: 5 * time.Millisecond})
			r.offer("b", fastJobs, play{For: time.Millisecond})
		}
		load()
		r.starts(slowJobs) // from then on Redis knows the scripts
		if ofOperator {
			r.must(o.run(t.Context(), call))
		}
		for n := range rounds {
			for name, spoil := range map[string]func(func([]byte) bool) *faultproxy.Trap{
				"cut before it arrived": network.CutBefore, "its answer swallowed": network.Swallow,
			} {
				trap := spoil(spoilt(r.name)[call])
				load()
				if ofOperator {
					r.must(o.run(t.Context(), call))
				}
				r.sprung(fmt.Sprintf("%s, %s, round %d", call, name, n), trap)
			}
		}
		r.check(o, call)
		h := r.drained()
		for tenant, n := range map[string]int64{"a": 20, "b": 400} {
			r.refuse(history.Starts(h.Tenant(tenant), r.patient(n)))
			r.counted(tenant, int64(len(distinct(h.Of(history.Accept).Tenant(tenant)))))
		}
		r.refuse(history.Accounts(h))
	})
}

// TestOffersAddUp has producers offer more than there is room for, over connections that break all
// the time: each is told once whether its job is accepted, and what was refused leaves no trace.
func TestOffersAddUp(t *testing.T) {
	t.Parallel()
	const producers, each, most = 4, 40, 5 // at a time in the bucket
	r := newServerRig(t)
	network, url := r.proxy()
	p := rate(10)
	p.Depth = most
	r.tenant("a", p)
	r.patiently(shaper.DefaultLease)
	r.daemon(both)
	o, err := newOperator(r.placed(role{Redis: url}), redisurl.Config{})
	r.must(err)
	defer o.close()
	r.must(o.offered(offer(t.Context(), o.client, o.rec, shaper.Spec{Tenant: "a", ID: "first", Type: "play", Payload: play{}.bytes()})))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var breaking errgroup.Group
	broken := 0
	breaking.Go(func() error {
		seen, enqueue := 0, spoilt(r.name)["enqueue"]
		match := func(request []byte) bool { // one request in three
			if !enqueue(request) {
				return false
			}
			seen++
			return seen%3 == 0
		}
		for ; ; broken++ {
			spoil := network.Swallow
			if broken%2 == 1 {
				spoil = network.CutBefore
			}
			trap := spoil(match)
			select {
			case <-trap.Sprung():
			case <-ctx.Done():
				return nil
			}
		}
	})
	var offering errgroup.Group
	for n := range producers {
		offering.Go(func() error {
			for i := range each {
				s := shaper.Spec{Tenant: "a", ID: fmt.Sprintf("%d-%d", n, i), Type: "play", Payload: play{}.bytes()}
				_, err := offer(ctx, o.client, o.rec, s)
				// Go-redis gave up; a producer that does not know offers the job again.
				for errors.Is(err, shaper.ErrStore) {
					var result shaper.Result
					if result, err = o.client.Offer(ctx, s); err == nil {
						err = o.rec.Record(answer(history.Event{Tenant: s.Tenant, ID: s.ID}, result))
					}
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	r.must(offering.Wait())
	cancel()
	r.must(breaking.Wait())
	h := r.drained()
	r.refuse(history.Unanswered(h), history.Accounts(h))
	accepted, refused := len(h.Of(history.Accept)), len(h.Of(history.Refuse))
	r.counted("a", int64(accepted))
	if accepted+refused != producers*each+1 || refused == 0 || broken < 10 {
		t.Errorf("%d accepted and %d refused of %d, %d connections broken; want them to add up, and some of each",
			accepted, refused, producers*each+1, broken)
	}
	t.Logf("%d accepted, %d refused, %d connections broken", accepted, refused, broken)
}
