package e2e

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestFullStoreDrains lets Redis reach its maxmemory with a backlog. Producers are refused; what
// was accepted goes on leaving, ticket by ticket, even through a daemon that is started only now;
// and once that has made room, jobs are accepted again.
func TestFullStoreDrains(t *testing.T) {
	notShort(t)
	t.Parallel()
	const ballast, backlog = 50 << 10, 60
	ctx := context.Background()
	r := newServerRig(t) // a store that tests share would be full for all of them
	r.tenant("a", rate(20))
	r.downstream(shaper.DownstreamPolicy{Lease: 2 * time.Second})
	daemons := r.startBoth(2)
	r.offer("a", 5, play{})
	r.drained()
	limit := func(bytes int64) { r.must(r.rdb.ConfigSet(ctx, "maxmemory", strconv.FormatInt(bytes, 10)).Err()) }

	r.must(r.admin.Pause(ctx, "a", 0))
	r.must(r.rdb.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	limit(r.memory() + backlog*ballast)
	offered := 0
	fill := func() shaper.Result {
		result, err := offer(ctx, r.client, r.rec, shaper.Spec{Tenant: "a", ID: "full-" + strconv.Itoa(offered), Type: "play", Payload: play{Ballast: make([]byte, ballast*3/4)}.bytes()})
		r.must(err)
		offered++
		return result
	}
	for fill().Status == shaper.Accepted {
		if offered > 10*backlog {
			t.Fatalf("%d jobs of %d bytes accepted with %d to spare", offered, ballast, backlog*ballast)
		}
	}
	waiting := offered - 1
	limit(r.memory() - int64(waiting)*ballast/2) // full until half of them have left

	daemons[0].kill()
	r.start(both)
	before := len(r.history().Of(history.Start))
	r.must(r.admin.Resume(ctx, "a"))
	var refused, left int
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		result := fill()
		if left = len(r.history().Of(history.Start)) - before; result.Status == shaper.Accepted {
			break
		}
		if refused++; result.Reason != shaper.RefusedMemory || result.RetryAfter <= 0 {
			t.Fatalf("%+v, want it refused for want of memory", result)
		}
		if time.Since(begun) > patience {
			t.Fatalf("%d of %d jobs left within %v while Redis is full", left, waiting, patience)
		}
	}
	h := r.drained()
	r.refuse(history.Starts(h, perSecond(20)), history.Accounts(h), history.Unanswered(h))
	t.Logf("%d jobs accepted until Redis was full, %d offers refused while %d of them left", waiting, refused, left)
	if left < waiting/4 || refused == 0 {
		t.Errorf("accepted again after %d of %d jobs had left, and %d refusals: Redis was not full for long", left, waiting, refused)
	}
}

var usedRE = regexp.MustCompile(`used_memory:(\d+)`)

// memory returns how many bytes Redis uses.
func (r *rig) memory() int64 {
	r.t.Helper()
	info, err := r.rdb.Info(context.Background(), "memory").Result()
	r.must(err)
	n, err := strconv.ParseInt(usedRE.FindStringSubmatch(info)[1], 10, 64)
	r.must(err)
	return n
}
