package jobshaper_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/policing/httplimit"
)

// A service takes jobs over HTTP. A middleware holds each client to a limit before the queue is
// asked anything, and what the queue refuses gets the same answer: 429, with Retry-After.
func Example_http() {
	ctx := context.Background()
	store, err := jobshaper.OpenEmbedded(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	queue, err := jobshaper.Open(store.Client(), "mail", jobshaper.Config{}) // a producer: workers run elsewhere
	if err != nil {
		log.Fatal(err)
	}
	take := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant := r.Header.Get("X-Api-Key") // which the service has checked
		result, err := queue.Offer(r.Context(), jobshaper.Spec{Tenant: tenant, Type: "mail:send"})
		switch {
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case result.Status == jobshaper.Refused:
			seconds := max(1, int(math.Ceil(result.RetryAfter.Seconds())))
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
			http.Error(w, result.Reason, http.StatusTooManyRequests)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	})

	rule, err := policing.ParseRule("token_bucket 1/h burst 2 name=clients")
	if err != nil {
		log.Fatal(err)
	}
	limits, err := policing.New(policing.Config{Rules: []policing.Rule{rule}}) // with Redis: all processes share the limit
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	limited := httplimit.Middleware(limits, httplimit.Config{Key: httplimit.APIKey("X-Api-Key")})(take)

	for range 3 {
		request := httptest.NewRequest(http.MethodPost, "/mails", nil)
		request.Header.Set("X-Api-Key", "acme")
		answer := httptest.NewRecorder()
		limited.ServeHTTP(answer, request)
		retry, _ := time.ParseDuration(answer.Header().Get("Retry-After") + "s")
		fmt.Println(answer.Code, retry.Round(time.Hour))
	}
	// Output:
	// 202 0s
	// 202 0s
	// 429 1h0m0s
}
