package httplimit

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/problem"
	"github.com/jobshaper/jobshaper/policing"
)

// stub gives one answer.
type stub struct {
	verdict policing.Verdict
	err     error
	subject policing.Subject // of the last question
	n       int64
}

func (s *stub) Check(_ context.Context, subject policing.Subject, n int64) (policing.Verdict, error) {
	s.subject, s.n = subject, n
	return s.verdict, s.err
}

// rule parses a rule that is right.
func rule(t testing.TB, text string) policing.Rule {
	t.Helper()
	r, err := policing.ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ruling is the ruling of a rule that was asked.
func ruling(t testing.TB, text string, d buckets.Decision) policing.Ruling {
	t.Helper()
	r := rule(t, text)
	d.Limit = r.Params.Limit
	return policing.Ruling{Rule: r, Asked: true, Decision: d}
}

// serve asks the middleware before a handler that says 202.
func serve(c policing.Checker, cfg Config, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	Middleware(c, cfg)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })).ServeHTTP(w, r)
	return w
}

func TestMiddleware(t *testing.T) {
	minute := ruling(t, "fixed_window 100/m name=minute", buckets.Decision{Allowed: true, Remaining: 50, ResetAfter: 29*time.Second + 1})
	burst := ruling(t, "token_bucket 10/s burst 25 name=burst", buckets.Decision{Allowed: true, Remaining: 7, ResetAfter: 1800 * time.Millisecond})
	full := burst
	full.Allowed, full.RetryAfter, full.Remaining = false, 100*time.Microsecond, 0
	never := burst
	never.Allowed, never.RetryAfter = false, buckets.Never
	dear := minute // what is left does not suffice
	dear.Allowed, dear.RetryAfter = false, 1500*time.Millisecond
	closed := policing.Ruling{Rule: rule(t, "fixed_window 9/s name=strict on_failure=closed"), Decision: buckets.Decision{RetryAfter: 250 * time.Millisecond}}
	open := policing.Ruling{Rule: rule(t, "fixed_window 9/s name=lax"), Decision: buckets.Decision{Allowed: true}}
	for name, tt := range map[string]struct {
		rulings []policing.Ruling
		set     policing.Verdict
		err     error
		status  int
		header  string // fields that matter, in order; "" where there is none
		body    string
	}{
		"passes": {
			rulings: []policing.Ruling{minute, burst}, status: 202,
			header: `limit 25, remaining 7, reset 2, retry , policy "minute";q=100;w=60, "burst";q=25;w=3, state "minute";r=50;t=30, "burst";r=7;t=2`,
		},
		"refused": {
			rulings: []policing.Ruling{minute, full}, status: 429,
			header: `limit 25, remaining 0, reset 2, retry 1, policy "minute";q=100;w=60, "burst";q=25;w=3, state "minute";r=50;t=30, "burst";r=0;t=2`,
			body:   `{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"limit burst is reached: try again in 1 ms","rule":"burst","retry_after_ms":1}`,
		},
		"refused by another than the one with the least left": {
			rulings: []policing.Ruling{dear, burst}, status: 429,
			header: `limit 100, remaining 50, reset 30, retry 2, policy "minute";q=100;w=60, "burst";q=25;w=3, state "minute";r=50;t=30, "burst";r=7;t=2`,
			body:   `{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"limit minute is reached: try again in 1500 ms","rule":"minute","retry_after_ms":1500}`,
		},
		"can never pass": {
			rulings: []policing.Ruling{never}, status: 429,
			header: `limit 25, remaining 7, reset 2, retry , policy "burst";q=25;w=3, state "burst";r=7;t=2`,
			body:   `{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"limit burst: the request costs more than can ever pass","rule":"burst","retry_after_ms":-1}`,
		},
		"closed while Redis is away": {
			rulings: []policing.Ruling{open, closed}, set: policing.Verdict{Degraded: true, Unavailable: true}, status: 503,
			header: `limit , remaining , reset , retry 1, policy , state `,
			body:   `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"limit strict cannot be checked at the moment","rule":"strict","retry_after_ms":250}`,
		},
		"open while Redis is away": {
			rulings: []policing.Ruling{open}, set: policing.Verdict{Degraded: true}, status: 202,
			header: `limit , remaining , reset , retry , policy , state `,
		},
		"no answer": {
			err: fmt.Errorf("late: %w", context.DeadlineExceeded), status: 503,
			header: `limit , remaining , reset , retry 1, policy , state `,
			body:   `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the limits could not be asked in time"}`,
		},
		"a key too long": {
			err: buckets.ErrKey, status: 400,
			header: `limit , remaining , reset , retry , policy , state `,
			body:   `{"type":"about:blank","title":"Bad Request","status":400,"detail":"the client's key is too long"}`,
		},
		"a cost below 0": {
			err: buckets.ErrCost, status: 500,
			header: `limit , remaining , reset , retry , policy , state `,
			body:   `{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"the limits could not be asked"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := policing.Judge(tt.rulings)
			v.Degraded, v.Unavailable = tt.set.Degraded, tt.set.Unavailable
			w := serve(&stub{verdict: v, err: tt.err}, Config{IETF: true}, httptest.NewRequest("GET", "/", nil))
			h := w.Header()
			got := fmt.Sprintf("limit %s, remaining %s, reset %s, retry %s, policy %s, state %s",
				h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Reset"), h.Get("Retry-After"),
				h.Get("RateLimit-Policy"), h.Get("RateLimit"))
			if w.Code != tt.status || got != tt.header {
				t.Errorf("%d, %s\nwant %d, %s", w.Code, got, tt.status, tt.header)
			}
			if body := strings.TrimSpace(w.Body.String()); body != tt.body {
				t.Errorf("body %s\nwant %s", body, tt.body)
			}
			if tt.body != "" && h.Get("Content-Type") != "application/problem+json" {
				t.Errorf("a problem of type %q", h.Get("Content-Type"))
			}
		})
	}
}

func TestMiddlewareAsks(t *testing.T) {
	s := &stub{verdict: policing.Verdict{Allowed: true, Rulings: []policing.Ruling{ruling(t, "fixed_window 5/s", buckets.Decision{Allowed: true})}}}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	w := serve(s, Config{}, r)
	if s.subject != (policing.Subject{Tenant: "192.0.2.7"}) || s.n != 1 || w.Header().Get("RateLimit") != "" {
		t.Errorf("by default: %+v, %d, RateLimit %q", s.subject, s.n, w.Header().Get("RateLimit"))
	}
	r.Header.Set("X-Tenant", "acme")
	serve(s, Config{Key: Header("X-Tenant"), Downstream: "mail", Cost: func(*http.Request) int64 { return 7 }}, r)
	if s.subject != (policing.Subject{Downstream: "mail", Tenant: "acme"}) || s.n != 7 {
		t.Errorf("as told: %+v, %d", s.subject, s.n)
	}
}

func TestKeys(t *testing.T) {
	with := func(name, value string) *http.Request {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(name, value)
		return r
	}
	key := APIKey("Authorization")
	secret := key(with("Authorization", "Bearer s3cret"))
	if len(secret) != 32 || strings.Contains(secret, "s3cret") {
		t.Errorf("key of a credential: %q, want 32 hex digits", secret)
	}
	if other := key(with("Authorization", "bearer  s3cret")); other != secret {
		t.Errorf("the same credential: %q and %q", secret, other)
	}
	if none := key(with("Authorization", " ")); none != "" {
		t.Errorf("no credential: %q", none)
	}
	long := Header("X")(with("X", strings.Repeat("a", 5000)))
	if len(long) != 32 || Header("X")(with("X", "acme")) != "acme" {
		t.Errorf("a long value: %q", long)
	}
}

func TestClientAddr(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:f::/48")}
	for _, tt := range []struct {
		remote, forwarded string
		want              string
	}{
		{"192.0.2.7:1", "", "192.0.2.7"},
		{"192.0.2.7:1", "198.51.100.1", "192.0.2.7"}, // not a proxy of ours: a lie
		{"10.0.0.1:1", "198.51.100.1", "198.51.100.1"},
		{"10.0.0.1:1", "1.1.1.1, 198.51.100.1", "198.51.100.1"}, // the client wrote 1.1.1.1
		{"10.0.0.1:1", "1.1.1.1, 198.51.100.1, 10.0.0.2", "198.51.100.1"},
		{"10.0.0.1:1", "1.1.1.1\n198.51.100.1,10.0.0.2", "198.51.100.1"}, // two lines are one list
		{"10.0.0.1:1", "10.0.0.3, 10.0.0.2", "10.0.0.3"},
		{"10.0.0.1:1", "", "10.0.0.1"},
		{"10.0.0.1:1", "unknown, 10.0.0.2", "10.0.0.2"},
		{"10.0.0.1:1", "198.51.100.1, , 10.0.0.2", "10.0.0.2"},
		{"10.0.0.1:1", "198.51.100.1:4711", "198.51.100.1"},
		{"10.0.0.1:1", "::ffff:198.51.100.1", "198.51.100.1"},
		{"[::ffff:10.0.0.1]:1", "198.51.100.1", "198.51.100.1"},
		{"[2001:db8:f::1]:1", "[2001:db8:1:2:3:4:5:6]:4711", "2001:db8:1:2::/64"},
		{"[2001:db8:f::1]:1", "[2001:db8:1:2::9]", "2001:db8:1:2::/64"},
		{"[fe80::1%eth0]:1", "", "fe80::/64"},
		{"@", "198.51.100.1", "@"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.remote
		for _, line := range strings.Split(tt.forwarded, "\n") {
			r.Header.Add("X-Forwarded-For", line)
		}
		if got := ClientAddr(AddrConfig{Trusted: trusted})(r); got != tt.want {
			t.Errorf("%s, forwarded for %q: %s, want %s", tt.remote, tt.forwarded, got, tt.want)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "[2001:db8::5]:1"
	for bits, want := range map[int]string{128: "2001:db8::5", 48: "2001:db8::/48"} {
		if got := ClientAddr(AddrConfig{V6Bits: bits})(r); got != want {
			t.Errorf("V6Bits %d: %s, want %s", bits, got, want)
		}
	}
}

// Whoever has a network of IPv6 addresses is one client by default, whichever of them it uses.
func TestOneClientHasManyAddresses(t *testing.T) {
	limiter, err := buckets.NewMemory(buckets.Params{Algorithm: buckets.TokenBucket, Limit: 5, Rate: buckets.Rate{Events: 5, Period: time.Hour}}, buckets.MemoryConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	passed := 0
	for i := range 1000 {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = fmt.Sprintf("[2001:db8:1:2::%x]:1", i)
		if d, err := limiter.Allow(t.Context(), RemoteAddr(r)); err == nil && d.Allowed {
			passed++
		}
	}
	if passed != 5 {
		t.Errorf("%d requests of one network passed, want 5", passed)
	}
}

var (
	digits = regexp.MustCompile(`^[0-9]{1,15}$`)
	items  = regexp.MustCompile(`^"([ !#-\[\]-~]|\\["\\])*"(;[a-z]=[0-9]{1,15})+(, "([ !#-\[\]-~]|\\["\\])*"(;[a-z]=[0-9]{1,15})+)*$`)
)

// Whatever a Verdict says, the fields can be read, and the body is JSON.
func FuzzFields(f *testing.F) {
	f.Add("burst", int64(100), int64(5), int64(60e9), int64(1), false)
	f.Add("a\"b\\c\r\nSet-Cookie: x\xff", int64(-1), int64(-1<<63), int64(1<<63-1), int64(-1), true)
	f.Fuzz(func(t *testing.T, name string, limit, remaining, wait, retry int64, unavailable bool) {
		r := policing.Ruling{
			Rule:     policing.Rule{Name: name, Params: buckets.Params{Algorithm: buckets.FixedWindow, Limit: limit, Window: time.Duration(wait)}},
			Asked:    true,
			Decision: buckets.Decision{Limit: limit, Remaining: remaining, ResetAfter: time.Duration(wait), RetryAfter: time.Duration(retry)},
		}
		v := policing.Judge([]policing.Ruling{r, r})
		v.Unavailable = unavailable
		w := serve(&stub{verdict: v}, Config{IETF: true}, httptest.NewRequest("GET", "/", nil))
		for field, pattern := range map[string]*regexp.Regexp{
			"X-Ratelimit-Limit": digits, "X-Ratelimit-Remaining": digits, "X-Ratelimit-Reset": digits, "Retry-After": digits,
			"Ratelimit-Policy": items, "Ratelimit": items,
		} {
			values := w.Header()[field]
			if len(values) == 0 && field == "Retry-After" && retry == -1 && !unavailable {
				continue
			}
			if len(values) != 1 || !pattern.MatchString(values[0]) {
				t.Errorf("%s: %q", field, values)
			}
		}
		if after := w.Header().Get("Retry-After"); after == "0" {
			t.Error("Retry-After: 0")
		}
		var p problem.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code {
			t.Errorf("body %q: %v", w.Body, err)
		}
	})
}
