package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestDistanceCostsNoRate puts Redis further and further away: the lead grows with the round trip, so
// that slots are granted before they pass, and starts are in them. From 40 ms on that takes a longer
// tolerance than the default.
func TestDistanceCostsNoRate(t *testing.T) {
	notShort(t)
	const jobs, per = 300, 100
	for _, far := range []time.Duration{7 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(fmt.Sprint(far), func(t *testing.T) {
			r := newServerRig(t)
			r.tenant("a", rate(per))
			tolerance := max(shaper.DefaultTolerance, far)
			r.downstream(shaper.DownstreamPolicy{Tolerance: tolerance})
			network, url := r.proxy()
			network.Delay(far)
			daemon := both
			daemon.Redis = url
			o := r.observe(daemon)
			r.offer("a", jobs, play{})
			h := r.drained()
			rule := perSecond(per)
			rule.Tolerance = tolerance + far/2 // on a busy machine both ways do not take the same time
			r.refuse(history.Starts(h, rule), history.Accounts(h))
			slipped, missed := o.metric("shaper_slipped_slots_total"), o.metric("shaper_missed_slots_total")
			t.Logf("%v slots slipped, %v were missed; %d starts took %v longer than they had to", slipped, missed, len(h.Of(history.Start)),
				history.Slip(h, "a", rule).Round(time.Millisecond))
			if slipped > jobs/4 {
				t.Errorf("%v slots of %d slipped, want next to none", slipped, jobs)
			}
		})
	}
}
