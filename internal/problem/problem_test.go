package problem

import (
	"math"
	"net/http/httptest"
	"testing"
	"time"
)

func TestWrite(t *testing.T) {
	ms := func(n int64) *int64 { return &n }
	for _, row := range []struct {
		p          Problem
		retryAfter string
		body       string
	}{
		{Problem{Status: 400, Detail: "d", Field: "f"}, "",
			`{"type":"about:blank","title":"Bad Request","status":400,"detail":"d","field":"f"}`},
		{Problem{Status: 503, Detail: "d"}, "1",
			`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"d"}`},
		{Problem{Status: 503, Detail: "d", RetryAfter: ms(-1)}, "1",
			`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"d","retry_after_ms":-1}`},
		{Problem{Status: 503, Detail: "d", RetryAfter: ms(1001)}, "2",
			`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"d","retry_after_ms":1001}`},
		{Problem{Status: 429, Detail: "d", Rule: "r", RetryAfter: ms(2000)}, "2",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"d","rule":"r","retry_after_ms":2000}`},
		{Problem{Status: 429, Detail: "d", Rule: "r", RetryAfter: ms(0)}, "1",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"d","rule":"r","retry_after_ms":0}`},
		{Problem{Status: 429, Detail: "d", Rule: "r", RetryAfter: ms(-1)}, "", // never
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"d","rule":"r","retry_after_ms":-1}`},
	} {
		w := httptest.NewRecorder()
		row.p.Write(w)
		h := w.Header()
		if w.Code != row.p.Status || w.Body.String() != row.body+"\n" || h.Get("Retry-After") != row.retryAfter {
			t.Errorf("%+v: %d, Retry-After %q\n%swant %q\n%s", row.p, w.Code, h.Get("Retry-After"), w.Body, row.retryAfter, row.body)
		}
		if h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%+v: header %v", row.p, h)
		}
	}
}

func TestSetRetryAfter(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "1", 0: "1", 1: "1", time.Second: "1", time.Second + 1: "2", time.Hour: "3600",
		math.MaxInt64: "9223372037",
	} {
		h := httptest.NewRecorder().Header()
		if SetRetryAfter(h, d); h.Get("Retry-After") != want {
			t.Errorf("%v: %q, want %q", d, h.Get("Retry-After"), want)
		}
	}
}
