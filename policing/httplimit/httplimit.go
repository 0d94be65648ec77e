// Package httplimit puts limits in front of an HTTP service: Middleware asks a policing.Checker
// about each request, tells the client where it stands, and answers the requests that do not pass.
//
// A KeyFunc says who a request is from: RemoteAddr, ClientAddr (behind proxies), APIKey or Header.
package httplimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/problem"
	"github.com/jobshaper/jobshaper/policing"
)

// Config says how Middleware asks and answers. The zero value is usable.
type Config struct {
	// Key says who a request is from; nil means RemoteAddr. See Header, APIKey and
	// ClientAddr.
	Key KeyFunc

	// Downstream is the Downstream of every request's Subject.
	Downstream string

	// Cost is the weight of a request; nil means 1 for each.
	Cost func(*http.Request) int64

	// IETF adds the fields RateLimit-Policy and RateLimit, one item for each rule
	// (draft-ietf-httpapi-ratelimit-headers-10).
	IETF bool
}

// Middleware puts a Checker in front of a handler. A request that passes goes on with
// X-RateLimit-Limit, -Remaining and -Reset (seconds from now) in the answer's header, of the
// rule with the least left. One that does not pass is answered here:
//
//   - 429 Too Many Requests with the same fields, of the rule that refused, and
//     Retry-After in whole seconds, rounded up, at least 1; a request that can never pass
//     has no Retry-After;
//   - 503 Service Unavailable with Retry-After, when a rule with FailClosed needs Redis, and Redis
//     is away;
//   - 400 Bad Request, when the key is longer than buckets takes.
//
// The body is a problem (RFC 9457) with the members rule and retry_after_ms, rounded up, -1
// for never.
func Middleware(c policing.Checker, cfg Config) func(http.Handler) http.Handler {
	if cfg.Key == nil {
		cfg.Key = RemoteAddr
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := int64(1)
			if cfg.Cost != nil {
				n = cfg.Cost(r)
			}
			v, err := c.Check(r.Context(), policing.Subject{Downstream: cfg.Downstream, Tenant: cfg.Key(r)}, n)
			if err != nil {
				problemOf(err).Write(w)
				return
			}
			WriteFields(w.Header(), v, cfg.IETF)
			if !v.Allowed {
				refusal(v).Write(w)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// problemOf is the answer when there is no Verdict.
func problemOf(err error) problem.Problem {
	switch {
	case errors.Is(err, buckets.ErrKey):
		return problem.Problem{Status: http.StatusBadRequest, Detail: "the client's key is too long"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, buckets.ErrStore):
		return problem.Problem{Status: http.StatusServiceUnavailable, Detail: "the limits could not be asked in time"}
	default: // a Cost below 0: the service's own mistake
		return problem.Problem{Status: http.StatusInternalServerError, Detail: "the limits could not be asked"}
	}
}
