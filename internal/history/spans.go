package history

import (
	"fmt"
	"math"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// Span is a time in which a tenant's rate may have been in force.
type Span struct {
	Rate        buckets.Rate
	From, Until int64 // ns of the history's clock
}

// Spans returns the rates of a tenant, from its Set events: whoever changes a rate writes down one
// before the call and one after it, since between them either rate may be in force.
func Spans(h History, tenant string) ([]Span, error) {
	sets := h.Of(Set).Tenant(tenant)
	var out []Span
	for i := 0; i < len(sets); i += 2 {
		rate, err := buckets.ParseRate(sets[i].Outcome)
		if err != nil {
			return nil, fmt.Errorf("rate of tenant %s: %w", tenant, err)
		}
		switch {
		case i+1 == len(sets): // the call may have taken effect, or not: from now on either rate may be in force
		case sets[i+1].Outcome != sets[i].Outcome:
			return nil, fmt.Errorf("rate of tenant %s: set to %s, and then it was %s", tenant, sets[i].Outcome, sets[i+1].Outcome)
		case len(out) > 0:
			out[len(out)-1].Until = sets[i+1].At
		}
		out = append(out, Span{rate, sets[i].At, math.MaxInt64})
	}
	return out, nil
}

// ahead is how long before a start its slot may have been granted, at a lead of 20 ms and a
// tolerance of as much: the rate of that instant is the one in force for it. It is generous.
const ahead = 150 * time.Millisecond

// Under puts each start under the fastest of the rates that may have been in force when its slot
// was granted, with what r says besides. Starts to which none of the spans applies stay as they
// are.
func Under(h History, spans []Span, r Rule) {
	for i := range h {
		e := &h[i]
		if e.Kind != Start {
			continue
		}
		for _, s := range spans {
			if s.From > e.At || s.Until < e.At-int64(ahead) {
				continue
			}
			own := Rule{Rate: s.Rate, Tolerance: r.Tolerance, Slack: r.Slack}
			if e.Under == nil || own.span(1) < e.Under.span(1) {
				e.Under = &own
			}
		}
	}
}
