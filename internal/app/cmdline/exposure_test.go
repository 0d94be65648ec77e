package cmdline

import (
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/shaper"
)

// Where any tenant is served and nothing bounds all of them, that is said.
func TestExposureIsSaid(t *testing.T) {
	open := shaper.DownstreamPolicy{Defaults: shaper.Policy{Rate: buckets.PerSecond(3)}}
	bounded, closed := open, open
	bounded.Rate = buckets.PerSecond(10)
	closed.UnknownTenants = shaper.RefuseUnknown
	if text := Exposure(open); !strings.Contains(text, "each at 3/s") || !strings.Contains(text, "3000/s") {
		t.Errorf("it says %q", text)
	}
	for _, p := range []shaper.DownstreamPolicy{bounded, closed} {
		if text := Exposure(p); text != "" {
			t.Errorf("%+v: it says %q", p, text)
		}
	}
}
