package model_test

import (
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
)

// Two tenants send a burst each to a downstream that starts ten jobs a second, of which two thirds
// are due to a, whose weight is 2. b is paused from 0.45 s to 0.75 s, and a has all of the rate;
// its job b2 fails once, and comes back to the front half a second later. At 1.25 s the rate of b
// is lowered to two a second, counted from its last start.
func Example() {
	const ms = 1000
	play := model.Play{Places: 10, Orders: []model.Order{
		{At: 450 * ms, Tenant: "b", Pause: 300 * ms},
		{At: 1250 * ms, Tenant: "b", Policy: &model.Policy{Rate: buckets.PerSecond(2)}},
	}}
	for tenant, n := range map[string]int{"a": 9, "b": 5} {
		for i := range n {
			a := model.Arrival{Tenant: tenant, Offer: model.Offer{ID: fmt.Sprint(tenant, i+1)}, Runs: 30 * time.Millisecond}
			if a.ID == "b2" {
				a.Ends, a.After = []model.Ending{model.EndError}, 500*time.Millisecond
			}
			play.Arrivals = append(play.Arrivals, a)
		}
	}
	d := model.New(0, model.DownstreamPolicy{Rate: buckets.PerSecond(10), Defaults: model.Policy{Rate: buckets.PerSecond(100)}})
	d.SetTenant("a", model.Policy{Weight: 2})
	for _, s := range model.Run(d, play).Starts {
		fmt.Printf("%4d ms  %s, start %d: %s\n", s.Slot/ms, s.ID, s.Attempt, s.Became)
	}
	// Output:
	//    0 ms  a1, start 1: done
	//  100 ms  b1, start 1: done
	//  200 ms  a2, start 1: done
	//  300 ms  a3, start 1: done
	//  400 ms  b2, start 1: retry
	//  500 ms  a4, start 1: done
	//  600 ms  a5, start 1: done
	//  700 ms  a6, start 1: done
	//  800 ms  b3, start 1: done
	//  900 ms  a7, start 1: done
	// 1000 ms  a8, start 1: done
	// 1100 ms  b2, start 2: done
	// 1200 ms  a9, start 1: done
	// 1600 ms  b4, start 1: done
	// 2100 ms  b5, start 1: done
}

// A bucket is full with three that wait; the fourth is refused, unless the tenant gives up the
// oldest.
func ExampleDownstream_Offer() {
	for _, full := range []string{"reject", "drop-oldest"} {
		d := model.New(0, model.DownstreamPolicy{})
		d.SetTenant("a", model.Policy{Depth: 3, OnFull: full})
		var last model.Answer
		for _, id := range []string{"j1", "j2", "j3", "j4"} {
			last = d.Offer("a", model.Offer{ID: id})[0]
		}
		fmt.Println("j4 is", last.Status, "and these wait:", d.Tenant("a").Waiting())
	}
	// Output:
	// j4 is full and these wait: [j1 j2 j3]
	// j4 is accepted and these wait: [j2 j3 j4]
}
