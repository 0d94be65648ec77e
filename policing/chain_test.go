package policing

import (
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// smallRule draws a rule that a few requests exhaust, within seconds.
func smallRule(t *rapid.T, i int) Rule {
	params := buckets.Params{
		Algorithm: rapid.SampledFrom(buckets.Algorithms()).Draw(t, "algorithm"),
		Limit:     rapid.Int64Range(1, 8).Draw(t, "limit"),
	}
	period := time.Duration(rapid.Int64Range(1, 3_000_000).Draw(t, "period")) * time.Microsecond
	switch params.Algorithm {
	case buckets.TokenBucket, buckets.LeakyBucket:
		params.Rate = buckets.Rate{Events: rapid.Int64Range(1, 9).Draw(t, "events"), Period: period}
	default:
		params.Window = period
	}
	return Rule{
		Name: fmt.Sprint("r", i), Params: params,
		Per:  Scope(rapid.IntRange(0, 2).Draw(t, "per")),
		Cost: rapid.Int64Range(0, min(2, params.Limit)).Draw(t, "cost"),
	}
}

var runs atomic.Int64

// For any chain and any requests: memory and Redis give the same verdicts; a refusal
// takes nothing; after RetryAfter the same request passes, and one µs earlier it does not.
func TestChains(t *testing.T) {
	client := redistest.Open(t)
	rapid.Check(t, func(rt *rapid.T) {
		now := t0
		clock := func() int64 { return now }
		var rules []Rule
		for i := range rapid.IntRange(1, 4).Draw(rt, "rules") {
			rules = append(rules, smallRule(rt, i))
		}
		open := func(cfg Config) *Policer {
			cfg.Rules, cfg.Clock, cfg.Deadline = rules, clock, time.Minute
			p, err := New(cfg)
			if err != nil {
				rt.Fatal(err)
			}
			return p
		}
		memory := open(Config{})
		defer memory.Close()
		shared := open(Config{Redis: client, Prefix: fmt.Sprint("run", runs.Add(1))})
		defer shared.Close()

		ask := func(who Subject, n int64) Verdict {
			v, err := memory.Check(t.Context(), who, n)
			if err != nil {
				rt.Fatal(err)
			}
			if w, err := shared.Check(t.Context(), who, n); err != nil || !reflect.DeepEqual(v, w) {
				rt.Fatalf("memory says %+v, Redis %+v, %v", v, w, err)
			}
			return v
		}
		for range rapid.IntRange(1, 20).Draw(rt, "requests") {
			now += rapid.Int64Range(0, 1_500_000).Draw(rt, "later")
			who := Subject{rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "downstream"), rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "tenant")}
			n := rapid.Int64Range(0, 4).Draw(rt, "n")
			before := ask(who, 0)
			v := ask(who, n)
			if v.Allowed {
				continue
			}
			if after := ask(who, 0); !reflect.DeepEqual(after, before) {
				rt.Fatalf("a refusal turned %+v into %+v", before, after)
			}
			if v.RetryAfter == buckets.Never {
				continue
			}
			if v.RetryAfter <= 0 {
				rt.Fatalf("refused, and yet to be tried again at once: %+v", v)
			}
			now += v.RetryAfter.Microseconds() - 1
			if w := ask(who, n); w.Allowed || w.RetryAfter != time.Microsecond {
				rt.Fatalf("%v less 1µs after %+v: %+v", v.RetryAfter, v, w)
			}
			now++
			if w := ask(who, n); !w.Allowed {
				rt.Fatalf("%v after %+v: %+v", v.RetryAfter, v, w)
			}
		}
	})
}
