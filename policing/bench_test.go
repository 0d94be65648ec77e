package policing

import (
	"fmt"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

var chains = map[string][]string{
	"1rule":  {"token_bucket 1000000/s burst 1000000"},
	"3rules": {"token_bucket 1000000/s burst 1000000", "fixed_window 1000000000/d per=downstream", "sliding_counter 1000000000/m per=global"},
	"heavy":  {"token_bucket 1000000/s burst 1000000", "heavy share=50% then token_bucket 10/s"},
}

func BenchmarkMemory(b *testing.B) {
	for name, rules := range chains {
		b.Run(name, func(b *testing.B) { benchmark(b, open(b, Config{}, rules...)) })
	}
}

func BenchmarkRedis(b *testing.B) {
	client := redistest.Start(b).Client()
	for name, rules := range chains {
		b.Run(name, func(b *testing.B) { benchmark(b, open(b, Config{Redis: client, Prefix: name}, rules...)) })
	}
}

func benchmark(b *testing.B, c Checker) {
	subjects := make([]Subject, 1000)
	for i := range subjects {
		subjects[i] = Subject{Downstream: "mail", Tenant: fmt.Sprint("tenant", i)}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := c.Check(b.Context(), subjects[i%len(subjects)], 1); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkHybrid(b *testing.B) {
	lender := newMemory(b, rule(b, "token_bucket 1000000000/s burst 1000000000").Params, nil)
	defer lender.Close()
	h := newHybrid(b, lender, HybridConfig{Lease: 1_000_000})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Allow(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHittersOffer(b *testing.B) {
	h := newHitters(b, HittersConfig{})
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("tenant", i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		h.Offer(keys[i%len(keys)])
		i++
	}
}
