package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/policing"
)

// problem is an error as RFC 9457 writes it.
type problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Rule       string `json:"rule,omitempty"`           // which one refused
	RetryAfter *int64 `json:"retry_after_ms,omitempty"` // -1 = never
}

// refusal is the problem of a Verdict that is not Allowed.
func refusal(v policing.Verdict) problem {
	p := problem{Status: http.StatusTooManyRequests, Rule: v.Refused}
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

func (p problem) write(w http.ResponseWriter) {
	p.Type = "about:blank" // says RFC 9457: the status tells all there is to branch on
	p.Title = http.StatusText(p.Status)
	body, err := json.Marshal(p)
	if err != nil { // it is made of strings and numbers
		panic(err)
	}
	h := w.Header()
	if p.Status == http.StatusServiceUnavailable || p.RetryAfter != nil && *p.RetryAfter >= 0 {
		var wait time.Duration
		if p.RetryAfter != nil {
			wait = time.Duration(*p.RetryAfter) * time.Millisecond
		}
		h.Set("Retry-After", seconds(max(wait, 1)))
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that went away needs no answer
}
