package e2e

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestTheBoundHoldsUnderLoad has 64 producers in four processes offer 9 600 jobs, as fast as they
// are answered, to a bucket with room for 100 that empties at 200/s. The level is sampled, and each
// answer must be one that a bucket with that room can give.
func TestTheBoundHoldsUnderLoad(t *testing.T) {
	notShort(t)
	t.Parallel()
	const depth, processes, producers, offers = 100, 4, 16, 150
	r := newRig(t)
	p := rate(200)
	p.Depth = depth
	r.tenant("a", p)
	// However busy this machine is, no job misses its slot and comes back to the bucket: what is in
	// it has arrived there.
	const tolerance = 5 * time.Second
	r.downstream(shaper.DownstreamPolicy{Tolerance: tolerance})
	r.startAll(role{Scheduler: true, Worker: true, Lean: true}, role{Worker: true, Lean: true})
	var roles []role
	for i := range processes {
		roles = append(roles, role{Offer: &offering{Tenant: "a", Prefix: fmt.Sprint(i, "-"), Jobs: producers, Rounds: offers}})
	}
	crowd := r.startAll(roles...)
	for _, p := range crowd {
		_, err := io.WriteString(p.stdin, "go\n")
		r.must(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	highest, samples, sampled := 0, 0, make(chan error)
	go func() {
		for {
			info, err := r.admin.Tenant(ctx, "a")
			if err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				sampled <- err
				return
			}
			highest, samples = max(highest, info.Level()), samples+1
		}
	}()
	for _, p := range crowd {
		p.end()
	}
	cancel()
	r.must(<-sampled)
	h := r.drained()
	rule := perSecond(200)
	rule.Tolerance = tolerance
	r.refuse(history.Unanswered(h), history.Accounts(h), history.Starts(h, rule))
	// A ticket is released a lead before its slot, and gets a later one if it was held up on its
	// way.
	r.refuse(history.Bound(h, "a", depth, 100*time.Millisecond+4*r.weather.longest()))
	accepted, refused := len(h.Of(history.Accept)), len(h.Of(history.Refuse))
	t.Logf("%d offers: %d accepted, %d refused; level up to %d in %d samples; the machine stalled for up to %v",
		processes*producers*offers, accepted, refused, highest, samples, r.weather.longest())
	if accepted+refused != processes*producers*offers {
		t.Errorf("%d accepted and %d refused, want %d together", accepted, refused, processes*producers*offers)
	}
	if highest > depth || accepted < depth || refused == 0 {
		t.Errorf("level up to %d, %d accepted, %d refused; want a level of at most %d, and some of both", highest, accepted, refused, depth)
	}
	for _, e := range h.Of(history.Refuse) {
		if e.Outcome != shaper.RefusedFull {
			t.Fatalf("job %s was refused as %q, want %q", e.ID, e.Outcome, shaper.RefusedFull)
		}
	}
	info, err := r.admin.Tenant(context.Background(), "a")
	r.must(err)
	if int(info.Counters.Accepted) != accepted || int(info.Counters.Done) != accepted {
		t.Errorf("%d counted as accepted, %d as done; %d were accepted", info.Counters.Accepted, info.Counters.Done, accepted)
	}
}
