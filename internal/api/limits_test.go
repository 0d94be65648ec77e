package api

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/shaper"
)

// limit gives the downstream admission rules.
func limit(t *testing.T, admin *shaper.Admin, texts ...string) {
	t.Helper()
	var rules []policing.Rule
	for _, text := range texts {
		r, err := policing.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	if err := admin.SetDownstream(t.Context(), shaper.DownstreamPolicy{Admit: rules}); err != nil {
		t.Fatal(err)
	}
}

// 202 and 429 both say how much the producer has left; 429 says which rule refused.
func TestLimited(t *testing.T) {
	var registry *prometheus.Registry
	url, admin := serve(t, func(c *Config) { registry, c.LimitHeaders = c.Registry, BothHeaders })
	limit(t, admin, "sliding_log 2/1h name=hourly", "token_bucket 50/s burst 60")
	for i, want := range []struct {
		status    int
		remaining string
	}{{202, "1"}, {202, "0"}, {429, "0"}} {
		a := ask(t, "POST", url+jobsPath, `{"type":"x"}`)
		if a.status != want.status || a.header.Get("X-RateLimit-Limit") != "2" || a.header.Get("X-RateLimit-Remaining") != want.remaining {
			t.Fatalf("offer %d: %d %v %s, want %d and %s left of 2", i, a.status, a.header, a.body, want.status, want.remaining)
		}
		if reset, err := strconv.Atoi(a.header.Get("X-RateLimit-Reset")); err != nil || reset < 3590 || reset > 3600 {
			t.Errorf("offer %d: X-RateLimit-Reset %q, want the seconds that are left of the hour", i, a.header.Get("X-RateLimit-Reset"))
		}
		if got := a.header.Get("RateLimit-Policy"); got != `"hourly";q=2;w=3600, "tenant-token-bucket";q=60;w=2` {
			t.Errorf("offer %d: RateLimit-Policy %s", i, got)
		}
		if got := a.header.Get("RateLimit"); !strings.HasPrefix(got, `"hourly";r=`+want.remaining+`;t=`) {
			t.Errorf("offer %d: RateLimit %s", i, got)
		}
		retry, _ := strconv.Atoi(a.header.Get("Retry-After"))
		if refused := a.status == 429; refused != (retry > 3500) || refused != (a.fields["rule"] == "hourly") || refused != (a.fields["reason"] == "limited") {
			t.Errorf("offer %d: Retry-After %d, %s", i, retry, a.body)
		}
	}
	want := `# HELP shaper_refused_total Jobs that this process refused over HTTP, by reason.
# TYPE shaper_refused_total counter
shaper_refused_total{downstream="d",reason="limited"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "shaper_refused_total"); err != nil {
		t.Error(err)
	}
}

// A full bucket refuses before the rules are asked: there is nothing to say about them.
func TestFullAsksNoRule(t *testing.T) {
	url, admin := serve(t, nil)
	limit(t, admin, "fixed_window 100/h")
	if err := admin.SetTenant(t.Context(), "acme", shaper.Policy{Depth: 1}); err != nil {
		t.Fatal(err)
	}
	ask(t, "POST", url+jobsPath, `{"type":"x"}`)
	a := ask(t, "POST", url+jobsPath, `{"type":"x"}`)
	if a.status != 429 || a.fields["reason"] != "full" || a.header.Get("Retry-After") != "1" || a.header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

// What can never pass is refused as by a limit, but without a time to try again.
func TestLimitedForGood(t *testing.T) {
	rule, err := policing.ParseRule("fixed_window 2/h name=x")
	if err != nil {
		t.Fatal(err)
	}
	v := policing.Judge([]policing.Ruling{{Rule: rule, Asked: true, Decision: buckets.Decision{Limit: 2, Remaining: 2, RetryAfter: buckets.Never}}})
	url := serveOn(t, stub{outcome: shaper.Offered{Result: shaper.Result{
		ID: "j", Tenant: "acme", Downstream: "d", Status: shaper.Refused, Reason: shaper.RefusedLimited, RetryAfter: -1, Admission: &v}}}, nil)
	a := ask(t, "POST", url+jobsPath, `{"type":"x"}`)
	if a.status != 429 || a.header.Get("Retry-After") != "" || a.fields["retry_after_ms"] != -1.0 || a.header.Get("X-RateLimit-Limit") != "2" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

func TestLimitHeaders(t *testing.T) {
	rule, err := policing.ParseRule("fixed_window 9/m name=x")
	if err != nil {
		t.Fatal(err)
	}
	v := policing.Judge([]policing.Ruling{{Rule: rule, Asked: true, Decision: buckets.Decision{Allowed: true, Limit: 9, Remaining: 4, ResetAfter: time.Second}}})
	for word, want := range map[string][2]string{"": {"4", ""}, "legacy": {"4", ""}, "ietf": {"", `"x";r=4;t=1`}, "both": {"4", `"x";r=4;t=1`}, "none": {}} {
		h := http.Header{}
		LimitHeaders(word).write(h, &v)
		if got := [2]string{h.Get("X-RateLimit-Remaining"), h.Get("RateLimit")}; got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
		if _, err := ParseLimitHeaders(word); (err != nil) != (word == "") {
			t.Errorf("ParseLimitHeaders(%q): %v", word, err)
		}
	}
	BothHeaders.write(nil, nil) // rules that were not asked have nothing to say
}
