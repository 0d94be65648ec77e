package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestIdleDaemonAsksLittle counts the commands that Redis runs for an idle daemon, those inside
// scripts too: fewer than 50 a second, however many tenants are known.
func TestIdleDaemonAsksLittle(t *testing.T) {
	notShort(t)
	t.Parallel()
	const most, over = 50, 3 * time.Second
	r := newServerRig(t)
	r.start(both)
	r.offer("a", 5, play{})
	r.drained()
	known := 1
	for _, tenants := range []int{1, 1000, 100_000} {
		r.know(known, tenants)
		known = tenants
		if names, err := r.admin.Names(context.Background(), false); err != nil || len(names) != tenants {
			t.Fatalf("%d tenants known (%v), want %d", len(names), err, tenants)
		}
		perSecond := float64(most)
		// The change wakes everybody, and a busy machine takes a while over that.
		for begun := time.Now(); perSecond >= most && time.Since(begun) < 2*patience; {
			before, begun := r.commands(), time.Now()
			time.Sleep(over)
			perSecond = float64(r.commands()-before) / time.Since(begun).Seconds()
			t.Logf("%d tenants known: %.1f commands/s", tenants, perSecond)
		}
		if perSecond >= most {
			t.Errorf("%d tenants known: %.1f commands/s, want fewer than %d", tenants, perSecond, most)
		}
	}
}

// know makes the tenants numbered from up to, but not including, to known, each with a policy of
// its own: copies of one, since setting that many one by one takes long.
func (r *rig) know(from, to int) {
	r.t.Helper()
	if from == to {
		return
	}
	ctx, ours, first := context.Background(), "shaper:{"+r.name+"}:", fmt.Sprintf("t%d", from)
	r.must(r.admin.SetTenant(ctx, first, rate(5)))
	at, err := r.rdb.ZScore(ctx, ours+"tenants", first).Result()
	r.must(err)
	_, err = r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := from + 1; i < to; i++ {
			name := fmt.Sprintf("t%d", i)
			p.Copy(ctx, ours+"t:"+first, ours+"t:"+name, 0, false)
			p.ZAdd(ctx, ours+"tenants", redis.Z{Score: at, Member: name})
		}
		return nil
	})
	r.must(err)
}

var callsRE = regexp.MustCompile(`calls=(\d+)`)

// commands returns how many commands Redis has run.
func (r *rig) commands() (n int) {
	r.t.Helper()
	stats, err := r.rdb.Info(context.Background(), "commandstats").Result()
	r.must(err)
	for _, m := range callsRE.FindAllStringSubmatch(stats, -1) {
		calls, err := strconv.Atoi(m[1])
		r.must(err)
		n += calls
	}
	return n
}
