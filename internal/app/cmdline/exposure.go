package cmdline

import (
	"fmt"

	"github.com/jobshaper/jobshaper/shaper"
)

// Exposure says what a downstream may see where nothing bounds it: no rate of all tenants, and any
// tenant is served, so that who invents tenants goes round the rate. It is empty where something does.
func Exposure(p shaper.DownstreamPolicy) string {
	p = p.WithDefaults()
	if !p.Rate.IsZero() || p.UnknownTenants == shaper.RefuseUnknown {
		return ""
	}
	thousand := p.Defaults.Rate
	thousand.Events *= 1000
	return fmt.Sprintf("any tenant is served, each at %s, and nothing bounds them all: a thousand invented ones start %s. "+
		"Want a rate of all tenants (rate: in the file, --total-rate) or unknown_tenants: refuse", p.Defaults.Rate, thousand)
}
