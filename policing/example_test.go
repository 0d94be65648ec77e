package policing_test

import (
	"context"
	"fmt"
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
