package policing

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobshaper/jobshaper/buckets"
)

func TestParseRule(t *testing.T) {
	perSecond := func(n int64) buckets.Rate { return buckets.PerSecond(n) }
	for _, tt := range []struct {
		text string
		want Rule
	}{
		{"token_bucket 10/s burst 100", Rule{Params: buckets.Params{Algorithm: buckets.TokenBucket, Limit: 100, Rate: perSecond(10)}}},
		{"token_bucket 10/s", Rule{Params: buckets.Params{Algorithm: buckets.TokenBucket, Limit: 10, Rate: perSecond(10)}}}, // a period's worth
		{"leaky_bucket 10/s depth 20", Rule{Params: buckets.Params{Algorithm: buckets.LeakyBucket, Limit: 20, Rate: perSecond(10)}}},
		{"fixed_window 1000/d", Rule{Params: buckets.Params{Algorithm: buckets.FixedWindow, Limit: 1000, Window: 24 * time.Hour}}},
		{"sliding_log 3/60s", Rule{Params: buckets.Params{Algorithm: buckets.SlidingLog, Limit: 3, Window: time.Minute}}},
		{"sliding_counter 100/m", Rule{Params: buckets.Params{Algorithm: buckets.SlidingCounter, Limit: 100, Window: time.Minute}}},
		{"  fixed_window\t5/m  per=global on_failure=closed name=all-of.it cost=3 ", Rule{
			Name: "all-of.it", Per: Global, OnFailure: FailClosed, Cost: 3,
			Params: buckets.Params{Algorithm: buckets.FixedWindow, Limit: 5, Window: time.Minute},
		}},
		{"heavy share=20% then token_bucket 10/s burst 10 on_failure=local", Rule{
			Heavy: 20 * Percent, OnFailure: FailLocal,
			Params: buckets.Params{Algorithm: buckets.TokenBucket, Limit: 10, Rate: perSecond(10)},
		}},
	} {
		got, err := ParseRule(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("%q: %+v, %v; want %+v", tt.text, got, err, tt.want)
		}
		if again, err := ParseRule(got.String()); err != nil || again != got {
			t.Errorf("%q: written as %q, which is %+v, %v", tt.text, got, again, err)
		}
	}
}

func TestParseRuleSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		text, says string
		is         error
	}{
		{"", "algorithm and a rate", ErrRule},
		{"token_bucket", "algorithm and a rate", ErrRule},
		{"bucket 10/s", `"bucket"`, ErrRule},
		{"token_bucket ten/s", "ten", buckets.ErrRate},
		{"token_bucket 0/s", "at least 1", buckets.ErrRate},
		{"token_bucket 10/s depth 5", "burst N", ErrRule},
		{"token_bucket 10/s burst", "burst N", ErrRule},
		{"token_bucket 10/s burst 0", "at least 1", ErrRule},
		{"token_bucket 10/s burst 1e3", "whole number", ErrRule},
		{"fixed_window 10/s burst 5", "burst", ErrRule},
		{"sliding_log 1000000/s", "100000", buckets.ErrParameter}, // a log remembers each
		{"fixed_window 1/s per=client", "tenant or downstream or global", ErrRule},
		{"fixed_window 1/s on_failure=panic", "open or closed or local", ErrRule},
		{"fixed_window 1/s name=", "empty", ErrRule},
		{"fixed_window 1/s name={x}", "letters", ErrRule},
		{"fixed_window 1/s cost=0", "cost=0", ErrRule},
		{"fixed_window 1/s per=tenant per=global", "once", ErrRule},
		{"fixed_window 1/s color=red", "color", ErrRule},
		{"heavy token_bucket 10/s", "share=20%", ErrRule},
		{"heavy share=100% then fixed_window 1/s", "less than 100%", ErrRule},
		{"heavy share=0% then fixed_window 1/s", "more than 0%", ErrRule},
		{"heavy share=20% then fixed_window 1/s per=global", "per=tenant", ErrRule},
		{"heavy share=20% then heavy share=20% then fixed_window 1/s", "heavy", nil},
	} {
		_, err := ParseRule(tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.says) || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%q: %v; want %v that says %q", tt.text, err, tt.is, tt.says)
		}
	}
}

func TestRuleOf(t *testing.T) {
	if _, err := RuleOf("sliding_log", buckets.PerSecond(5), 7); !errors.Is(err, ErrRule) {
		t.Errorf("a window with a burst: %v", err)
	}
	r, err := RuleOf("leaky_bucket", buckets.Rate{Events: 1, Period: 90 * time.Second}, 0)
	if err != nil || r.Params.Limit != 1 {
		t.Errorf("a bucket without a burst: %+v, %v; want the events of its rate", r, err)
	}
}

// anyRule draws a valid rule.
func anyRule(t *rapid.T) Rule {
	r := Rule{
		Name:      rapid.StringMatching(`([A-Za-z0-9][A-Za-z0-9._-]{0,63})?`).Draw(t, "name"),
		Per:       Scope(rapid.IntRange(0, 2).Draw(t, "per")),
		OnFailure: FailurePolicy(rapid.IntRange(0, 2).Draw(t, "on failure")),
		Params:    buckets.Params{Algorithm: rapid.SampledFrom(buckets.Algorithms()).Draw(t, "algorithm")},
	}
	if r.Per == PerTenant {
		r.Heavy = Share(rapid.Int64Range(0, int64(whole)-1).Draw(t, "share"))
	}
	r.Params.Limit = rapid.Int64Range(1, 100_000).Draw(t, "limit")
	r.Cost = rapid.Int64Range(0, min(MaxCost, r.Params.Limit)).Draw(t, "cost")
	period := time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "period")) * time.Microsecond
	switch r.Params.Algorithm {
	case buckets.TokenBucket, buckets.LeakyBucket:
		r.Params.Rate = buckets.Rate{Events: rapid.Int64Range(1000, buckets.MaxEvents).Draw(t, "events"), Period: period}
	default:
		r.Params.Window = period
	}
	return r
}

func TestRuleRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRule(t)
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		if again, err := ParseRule(r.String()); err != nil || again != r {
			t.Fatalf("%+v is written as %q, which is %+v, %v", r, r, again, err)
		}
	})
}

// What costs more than the limit could never pass. That is an error where the rule is made,
// whichever way it is made.
func TestCostBeyondTheLimit(t *testing.T) {
	for _, text := range []string{"token_bucket 10/s burst 2", "leaky_bucket 10/s depth 2", "fixed_window 2/s", "sliding_log 2/s", "sliding_counter 2/s"} {
		r, err := ParseRule(text + " cost=2")
		if err != nil {
			t.Errorf("%s cost=2: %v", text, err)
			continue
		}
		if _, err := ParseRule(text + " cost=3"); !errors.Is(err, ErrRule) || !strings.Contains(err.Error(), "cost 3: want at most 2") {
			t.Errorf("ParseRule(%s cost=3): %v", text, err)
		}
		r.Cost = 3
		if _, err := New(Config{Rules: []Rule{r}}); !errors.Is(err, ErrRule) {
			t.Errorf("New with %v: %v", r, err)
		}
		if _, err := Named([]Rule{r}); !errors.Is(err, ErrRule) {
			t.Errorf("Named with %v: %v", r, err)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	f.Add("heavy share=0.25% then token_bucket 10/s burst 100 name=a per=tenant on_failure=local cost=2")
	f.Add("sliding_counter 3/333333us per=global")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRule(text)
		if err != nil {
			return
		}
		if err := r.Validate(); err != nil {
			t.Errorf("%q: accepted, and yet %v", text, err)
		}
		if again, err := ParseRule(r.String()); err != nil || again != r {
			t.Errorf("%q: %+v is written as %q, which is %+v, %v", text, r, r, again, err)
		}
	})
}

func TestShareOfALimit(t *testing.T) {
	for _, tt := range []struct {
		nodes        int
		params, want string
	}{
		{1, "token_bucket 10/s burst 100", "token_bucket 10/s burst 100"},
		{3, "token_bucket 10/s burst 100", "token_bucket 10/3s burst 33"}, // exact rate, limit rounded down
		{4, "fixed_window 3/m", "fixed_window 1/m"},                       // at least 1
		{4, "sliding_log 100/m", "sliding_log 25/m"},
		{4, "leaky_bucket 100/366d depth 8", "leaky_bucket 25/366d depth 2"}, // no longer period fits
	} {
		r := rule(t, tt.params)
		r.Params = share(r.Params, tt.nodes)
		if r.String() != tt.want {
			t.Errorf("%s by %d nodes: %v, want %s", tt.params, tt.nodes, r, tt.want)
		}
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
	}
}
