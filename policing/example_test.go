package policing_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/jobshaper/jobshaper/policing"
)

func must(text string) policing.Rule {
	r, err := policing.ParseRule(text)
	if err != nil {
		panic(err)
	}
	return r
}

func ExamplePolicer() {
	p, err := policing.New(policing.Config{Rules: []policing.Rule{
		must("token_bucket 1/h burst 2 name=burst"),
		must("fixed_window 1000/366d name=quota per=downstream"),
	}}) // with Redis: a client that all processes share
	if err != nil {
		panic(err)
	}
	defer p.Close()
	for range 3 {
		v, err := p.Check(context.Background(), policing.Subject{Downstream: "mail", Tenant: "acme"}, 1)
		if err != nil {
			panic(err)
		}
		fmt.Println(v.Allowed, v.Remaining, v.Refused, v.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 1  0s
	// true 0  0s
	// false 0 burst 1h0m0s
}

// A service that lets each client send two requests at once.
func ExampleMiddleware() {
	p, err := policing.New(policing.Config{Rules: []policing.Rule{must("leaky_bucket 1/h depth 2 name=clients")}})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	limited := policing.Middleware(p, policing.HTTPOptions{Key: policing.APIKey("X-Api-Key"), IETF: true})(hello)

	service := httptest.NewServer(limited)
	defer service.Close()
	for range 3 {
		request, err := http.NewRequest("GET", service.URL, nil)
		if err != nil {
			panic(err)
		}
		request.Header.Set("X-Api-Key", "s3cret")
		response, err := service.Client().Do(request)
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		h := response.Header
		fmt.Println(response.StatusCode, h.Get("X-RateLimit-Remaining"), h.Get("RateLimit-Policy"), h.Get("Content-Type"))
	}
	// Output:
	// 200 1 "clients";q=2;w=7200 text/plain; charset=utf-8
	// 200 0 "clients";q=2;w=7200 text/plain; charset=utf-8
	// 429 0 "clients";q=2;w=7200 application/problem+json
}
