package policing

import (
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

// t0 is where tests' clocks start: the edge of a window of a minute, and of less.
const t0 = int64(1_732_950_000_000_000)

var (
	acme  = Subject{Downstream: "mail", Tenant: "acme"}
	other = Subject{Downstream: "mail", Tenant: "other"}
)

// rule parses a rule that is right.
func rule(t testing.TB, text string) Rule {
	t.Helper()
	r, err := ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// open makes a Policer, closed when the test ends.
func open(t testing.TB, cfg Config, rules ...string) *Policer {
	t.Helper()
	for _, text := range rules {
		cfg.Rules = append(cfg.Rules, rule(t, text))
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// check asks, and fails the test when there is no answer.
func check(t testing.TB, p Checker, s Subject, n int64) Verdict {
	t.Helper()
	v, err := p.Check(t.Context(), s, n)
	if err != nil {
		t.Fatalf("Check(%v, %d): %v", s, n, err)
	}
	return v
}

// left returns what each rule has left.
func left(t testing.TB, p Checker, s Subject) (all []int64) {
	t.Helper()
	for _, r := range check(t, p, s, 0).Rulings {
		all = append(all, r.Remaining)
	}
	return all
}

// eventually asks until it is told yes, and fails the test after a bound that only a
// broken system reaches.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, testenv.Patience)
		}
	}
}

// tokens is a token bucket that does not refill while a test runs.
func tokens(limit int64) buckets.Params {
	return buckets.Params{Algorithm: buckets.TokenBucket, Limit: limit, Rate: buckets.Rate{Events: 1, Period: time.Hour}}
}
