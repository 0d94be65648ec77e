package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestIdleDaemonAsksLittle counts the commands that Redis runs for an idle daemon, those inside scripts too: fewer than
// 50 a second, however many tenants are known.
func TestIdleDaemonAsksLittle(t *testing.T) {
	t.Parallel()
	const most, over = 50, 3 * time.Second
	r := newServerRig(t)
	r.start(both)
	r.offer("a", 5, play{})
	r.drained()
	known := 1
	for _, tenants := range []int{1, 1000, 20_000} {
		r.know(known, tenants)
		known = tenants
		if names, err := r.admin.Names(context.Background(), false); err != nil || len(names) != tenants {
			t.Fatalf("%d tenants known (%v), want %d", len(names), err, tenants)
		}
		time.Sleep(100 * time.Millisecond) // what the change woke
		before := r.commands()
		time.Sleep(over)
		perSecond := float64(r.commands()-before) / over.Seconds()
		t.Logf("%d tenants known: %.1f commands/s", tenants, perSecond)
		if perSecond >= most {
			t.Errorf("%d tenants known: %.1f commands/s, want fewer than %d", tenants, perSecond, most)
		}
	}
}

// know makes tenants number from to below to known, each with a policy of its own.
func (r *rig) know(from, to int) {
	r.t.Helper()
	const together = 10
	var group errgroup.Group
	for n := range together {
		group.Go(func() error {
			for i := from + n; i < to; i += together {
				if err := r.admin.SetTenant(context.Background(), fmt.Sprintf("t%d", i), rate(5)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	r.must(group.Wait())
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
