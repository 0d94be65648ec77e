package httplimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/policing/httplimit"
)

// A service that lets each client send two requests at once.
func ExampleMiddleware() {
	rule, err := policing.ParseRule("leaky_bucket 1/h depth 2 name=clients")
	if err != nil {
		panic(err)
	}
	p, err := policing.New(policing.Config{Rules: []policing.Rule{rule}})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	limited := httplimit.Middleware(p, httplimit.Config{Key: httplimit.APIKey("X-Api-Key"), IETF: true})(hello)

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
