package explore_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/explore"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

var (
	large = flag.Bool("explore.large", false, "explore the large scenarios")
	only  = flag.String("explore.only", "", "explore this scenario only")
	most  = flag.Int("explore.most", 0, "states of a scenario, after which those that were not followed are only played to their end; 0 = no bound")
)

// TestScenarios follows all that can happen in each scenario.
func TestScenarios(t *testing.T) {
	testenv.Long(t, "follows all that can happen in eleven small worlds")
	for _, s := range explore.Scenarios(*large) {
		if *only != "" && *only != s.Name {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			from := time.Now()
			r := explore.Explore(s, *most)
			t.Logf("%d states, %d transitions, %d steps deep, all of them: %v; all ends within %v; %d compared, in %v", r.States,
				r.Transitions, r.Depth, r.Complete, r.Worst, r.Compared, time.Since(from).Round(time.Millisecond))
			if r.Broken != "" {
				t.Errorf("%s:\n%s", r.Broken, strings.Join(r.Trace, "\n"))
			}
			if !r.Complete && *most == 0 && r.Broken == "" {
				t.Error("not all was followed, and nothing broke")
			}
		})
	}
}

// The same scenario is explored in the same way.
func TestSameTwice(t *testing.T) {
	for _, s := range explore.Scenarios(false)[:3] {
		a, b := explore.Explore(s, 300), explore.Explore(s, 300)
		if a.States != b.States || a.Transitions != b.Transitions || a.Complete || a.Worst != b.Worst {
			t.Errorf("%s: %+v, and then %+v", s.Name, a, b)
		}
	}
}
