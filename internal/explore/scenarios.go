package explore

import (
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
)

// Scenarios are the small worlds in which all of what can happen is followed. Each is about a few
// faults that may meet; the large ones have more of them, or more jobs, and take minutes.
func Scenarios(large bool) (all []Scenario) {
	add := func(name string, small, big Scenario) {
		s := small
		if large {
			s = big
		}
		s.Name = name
		fill(&s)
		all = append(all, s)
	}
	// Tickets and replies get lost, come twice, or late.
	add("gate",
		Scenario{Tenants: tenants(2), Pools: []int{2}, Faults: Faults{Lose: 1, Double: 1, Reply: 1}},
		Scenario{Tenants: tenants(2), Pools: []int{2}, Faults: Faults{Lose: 1, Double: 1, Reply: 1, Slow: 1}})
	// An interval no longer than the lead: several tickets of a tenant race each other to the gate.
	racing := []Tenant{{Name: "a", Jobs: 3, Policy: model.Policy{Rate: buckets.PerSecond(50)}}}
	add("race",
		Scenario{Tenants: racing, Pools: []int{2}, Faults: Faults{Slow: 1}},
		Scenario{Tenants: racing, Pools: []int{2}, Faults: Faults{Slow: 2, Lose: 1}})
	// Starts end in every way, and their reports are repeated.
	add("ends",
		Scenario{Tenants: tenants(2), Pools: []int{1}, Faults: Faults{Fail: 2, Throttle: 1, Reply: 1}},
		Scenario{Tenants: tenants(2), Pools: []int{1}, Faults: Faults{Fail: 2, Throttle: 1, Back: 1, Reply: 2, Slow: 1}})
	// Pools die, and pools that were cut off come back with what they ran.
	add("crash",
		Scenario{Tenants: tenants(1), Pools: []int{1, 1}, Faults: Faults{Crash: 1, Cut: 1, Reply: 1}},
		Scenario{Tenants: tenants(2), Pools: []int{1, 1}, Faults: Faults{Crash: 1, Cut: 1, Reply: 1}})
	// Redis restarts, at once or after it was away.
	add("away",
		Scenario{Tenants: tenants(1), Pools: []int{1}, Faults: Faults{Restart: 1, Away: 1, Reply: 1}},
		Scenario{Tenants: tenants(2), Pools: []int{1, 1}, Faults: Faults{Restart: 1, Away: 1, Crash: 1, Reply: 1}})
	// Redis forgets up to its last second.
	add("forget",
		Scenario{Tenants: tenants(2), Pools: []int{1}, Faults: Faults{Forget: 1, Change: 1}},
		Scenario{Tenants: tenants(2), Pools: []int{1}, Faults: Faults{Forget: 2, Change: 1, Reply: 1}})
	// A job takes processes down, beside others that do not.
	poisoned := []Tenant{{Name: "a", Jobs: 1}, {Name: "b", Jobs: 1, Poison: 1}}
	add("blame",
		Scenario{Tenants: poisoned, Pools: []int{2}, Faults: Faults{Crash: 1}},
		Scenario{Tenants: []Tenant{{Name: "a", Jobs: 2}, {Name: "b", Jobs: 1, Poison: 1}}, Pools: []int{2}, Faults: Faults{Crash: 1}})
	// Two such jobs, and another pool.
	add("poisons",
		Scenario{Tenants: []Tenant{{Name: "a", Jobs: 1, Poison: 1}, {Name: "b", Jobs: 1, Poison: 1}}, Pools: []int{2}},
		Scenario{Tenants: []Tenant{{Name: "a", Jobs: 2, Poison: 1}, {Name: "b", Jobs: 1, Poison: 1}}, Pools: []int{2, 1}})
	// Somebody pauses, resumes, cancels and changes rates.
	add("orders",
		Scenario{Tenants: tenants(2), Pools: []int{1}, Faults: Faults{Pause: 1, Change: 1, Cancel: 1}},
		Scenario{Tenants: tenants(2), Pools: []int{1}, Faults: Faults{Pause: 1, Stop: 1, Change: 2, Cancel: 1, Reply: 1}})
	// The downstream has a rate of its own, which tenants share.
	common := model.DownstreamPolicy{Rate: buckets.PerSecond(20)}
	add("shared",
		Scenario{Tenants: tenants(1, 1), Pools: []int{2}, Policy: common, Faults: Faults{Forget: 1}},
		Scenario{Tenants: tenants(1, 2), Pools: []int{2}, Policy: common, Faults: Faults{Forget: 1, Slow: 1}})
	// A bucket has room for one, and one may be in flight.
	bounded := model.DownstreamPolicy{Defaults: model.Policy{Depth: 1, MaxInFlight: 1}}
	add("bound",
		Scenario{Tenants: tenants(3), Pools: []int{2}, Policy: bounded, Faults: Faults{Crash: 1, Fail: 1}},
		Scenario{Tenants: tenants(3), Pools: []int{2}, Policy: bounded, Faults: Faults{Crash: 1, Fail: 1, Reply: 1, Slow: 1}})
	return all
}

// tenants are some with so many jobs each.
func tenants(jobs ...int) (all []Tenant) {
	for i, n := range jobs {
		all = append(all, Tenant{Name: fmt.Sprintf("%c", 'a'+i), Jobs: n})
	}
	return all
}

// fill fills in what is the same in most scenarios. The lease is short, so that little happens
// within one.
func fill(s *Scenario) {
	s.Policy.Lease = 3 * time.Second
	s.Policy.MaxCrashes = 4 // more than leases can end for any other reason than a poison
	s.Other = buckets.Rate{Events: 5, Period: 2 * time.Second}
	s.Within = time.Minute
	for i := range s.Tenants {
		p := &s.Tenants[i].Policy
		if p.Rate.IsZero() {
			p.Rate = buckets.PerSecond(10)
		}
		p.MaxAttempts = 2
	}
}
