package shaper

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// scriptsRun is how many scripts this Redis has run.
func scriptsRun(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		n, _ = strconv.Atoi(m[1])
	}
	return n
}

// stuck are buckets that stay full whatever the timeline says.
var stuck = map[string]func(w *world){
	"no workers": func(*world) {},
	"all in flight": func(w *world) {
		w.pool("p", 10)
		w.setDownstream(DownstreamPolicy{MaxInFlight: 1})
		w.offers("other", 1)
		w.release(10)
	},
	"a delayed head":          func(*world) {},
	"all paused":              func(w *world) { w.must(w.admin.Pause(w.t.Context(), "", 0)) },
	"a tenant that is paused": func(w *world) { w.must(w.admin.Pause(w.t.Context(), "a", 0)) },
}

// A producer that waits for room asks at most a few times a second if the bucket cannot know when
// there will be any, and takes what becomes free at the next try.
func TestWhoWaitsAsksSeldom(t *testing.T) {
	testenv.Long(t, "watches how seldom a producer asks while it waits")
	t.Parallel()
	for name, arrange := range stuck {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Start(t).Client()
			w := newWorld(t, rdb)
			w.q.Clock = nil // Redis' own
			w.client, w.admin, w.gate = newClient(w.q, ClientConfig{}), &Admin{w.q}, queue.NewGate(w.q)
			w.set("a", Policy{Rate: rate(1000, time.Second), Depth: 1, OnFull: Block})
			arrange(w)
			first := Spec{Tenant: "a", ID: "a1", Type: "x"}
			if name == "a delayed head" {
				first.Delay = time.Hour
			}
			w.offer(first)
			before := scriptsRun(t, rdb)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			r, err := w.client.Offer(ctx, Spec{Tenant: "a", ID: "a2", Type: "x"})
			if n := scriptsRun(t, rdb) - before; err != nil || r.Reason != RefusedFull || n > 20 {
				t.Errorf("%d calls in 2 s, %+v, %v; want at most 20, and that it is full", n, r, err)
			}

			if r.RetryAfter > time.Second { // it asks too seldom for what follows
				return
			}
			done := make(chan Result, 1)
			go func() {
				r, err := w.client.Offer(t.Context(), Spec{Tenant: "a", ID: "a3", Type: "x"})
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			for waits := scriptsRun(t, rdb); scriptsRun(t, rdb) < waits+10; { // so it has been refused again and again
				time.Sleep(10 * time.Millisecond)
			}
			if n, err := w.admin.Purge(t.Context(), "a"); n != 1 || err != nil {
				t.Fatalf("purged %d, %v", n, err)
			}
			free := scriptsRun(t, rdb)
			if r := <-done; r.Status != Accepted {
				t.Errorf("a place became free, and the answer is %+v", r)
			}
			if n := scriptsRun(t, rdb) - free; n > 1 {
				t.Errorf("%d tries after a place became free, want one", n)
			}
		})
	}
}
