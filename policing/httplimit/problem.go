package httplimit

import (
	"fmt"
	"net/http"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/problem"
	"github.com/jobshaper/jobshaper/policing"
)

// refusal is the problem of a Verdict that is not Allowed.
func refusal(v policing.Verdict) problem.Problem {
	p := problem.Problem{Status: http.StatusTooManyRequests, Rule: v.Refused}
	ms := ceil(v.RetryAfter, time.Millisecond)
	switch {
	case v.Unavailable:
		p.Status = http.StatusServiceUnavailable
		p.Detail = fmt.Sprintf("limit %s cannot be checked at the moment", v.Refused)
	case v.RetryAfter == buckets.Never:
		ms = -1
		p.Detail = fmt.Sprintf("limit %s: the request costs more than can ever pass", v.Refused)
	default:
		p.Detail = fmt.Sprintf("limit %s is reached: try again in %d ms", v.Refused, ms)
	}
	p.RetryAfter = &ms
	return p
}
