package api

import (
	"net/http"

	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/policing/httplimit"
	"github.com/jobshaper/jobshaper/shaper"
)

// LimitHeaders says which header fields tell a producer how much the admission rules still allow.
type LimitHeaders string

const (
	// LegacyHeaders are X-RateLimit-Limit, -Remaining and -Reset, of the rule with the least left.
	// The zero value.
	LegacyHeaders LimitHeaders = "legacy"
	// IETFHeaders are RateLimit-Policy and RateLimit, of all rules
	// (draft-ietf-httpapi-ratelimit-headers-10).
	IETFHeaders LimitHeaders = "ietf"
	// BothHeaders are all of them.
	BothHeaders LimitHeaders = "both"
	// NoHeaders is nothing but Retry-After.
	NoHeaders LimitHeaders = "none"
)

// ParseLimitHeaders reads one of the words. Its error wraps shaper.ErrInvalid.
func ParseLimitHeaders(s string) (LimitHeaders, error) {
	switch l := LimitHeaders(s); l {
	case LegacyHeaders, IETFHeaders, BothHeaders, NoHeaders:
		return l, nil
	}
	return "", &shaper.FieldError{Field: "ratelimit-headers", Value: s, Want: "legacy, ietf, both or none"}
}

// write writes the header fields for a verdict, if rules were asked at all.
func (l LimitHeaders) write(h http.Header, v *policing.Verdict) {
	if v == nil || l == NoHeaders {
		return
	}
	httplimit.WriteFields(h, *v, l == IETFHeaders || l == BothHeaders)
	if l == IETFHeaders {
		for _, legacy := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			h.Del(legacy)
		}
	}
}
