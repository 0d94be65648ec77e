// Package problem answers HTTP requests in JSON, with errors in the form of RFC 9457.
package problem

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Problem is an error. Status and Detail must be set; Write fills in Type and Title.
type Problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Detail     string `json:"detail"`
	Field      string `json:"field,omitempty"`          // which field of the request is to blame
	Rule       string `json:"rule,omitempty"`           // which limit refused
	RetryAfter *int64 `json:"retry_after_ms,omitempty"` // -1 = never
}

// Write answers a request. A 503 always has a Retry-After, and so has a problem that says when to
// try again.
func (p Problem) Write(w http.ResponseWriter) {
	p.Type = "about:blank" // as RFC 9457 has it: the status says all there is to branch on
	p.Title = http.StatusText(p.Status)
	wait := time.Duration(-1)
	if p.Status == http.StatusServiceUnavailable {
		wait = 0
	}
	if p.RetryAfter != nil {
		wait = max(wait, time.Duration(*p.RetryAfter)*time.Millisecond)
	}
	if wait >= 0 {
		SetRetryAfter(w.Header(), wait)
	}
	WriteJSON(w, p.Status, "application/problem+json", p)
}

// SetRetryAfter sets Retry-After to d, rounded up to whole seconds, and at least 1.
func SetRetryAfter(h http.Header, d time.Duration) {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	h.Set("Retry-After", strconv.FormatInt(max(1, seconds), 10))
}

// WriteJSON answers a request with v, which is made of strings and numbers.
func WriteJSON(w http.ResponseWriter, status int, contentType string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that went away needs no answer
}
