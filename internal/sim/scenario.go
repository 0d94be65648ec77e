package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
)

// Scenario is what is played.
type Scenario struct {
	Seed       uint64
	For        time.Duration // how long jobs come and things break; then all is left to end
	Policy     model.DownstreamPolicy
	Tenants    []Tenant
	Pools      []int         // places of each
	Schedulers int           //
	Poll       time.Duration // the longest sleep of a scheduler
	Distance   time.Duration // one way between a process and Redis
	Faults     Faults
}

// Tenant is one tenant, and what comes from it.
type Tenant struct {
	Name    string
	Policy  model.Policy
	Backlog int           // jobs that it offers at the beginning
	Load    float64       // what it offers from then on, in parts of its rate; the instants are random
	Runs    time.Duration // the longest that a handler runs
	Fails   float64       // how many starts fail, to be tried again after a second
	Poison  int           // how many jobs of the backlog take their process down whenever they run
}

// Faults are how often things break, on average; zero is never.
type Faults struct {
	PoolCrash, SchedulerCrash time.Duration
	Restart                   time.Duration // of Redis, which is away for up to Away
	Away                      time.Duration
	Forgets                   float64 // how many of the restarts forget up to a second, where the queue can
	LostTicket, LostReply     float64 // part of all
}

func (f Faults) any() bool { return f != Faults{} }

// Draw draws a scenario. Of three, one is calm: nothing breaks, all tenants have a backlog, and each
// must get its rate. One is stormy, and one is about tenants that start a few times a day.
func Draw(seed uint64) Scenario {
	r := rand.New(rand.NewPCG(seed, 1))
	s := Scenario{Seed: seed, Policy: model.DownstreamPolicy{MaxCrashes: 1000}, Schedulers: 1 + r.IntN(2), Poll: time.Second,
		Distance: pick(r, 100*time.Microsecond, time.Millisecond, 3*time.Millisecond)}
	for range 1 + r.IntN(3) {
		s.Pools = append(s.Pools, 2+r.IntN(6))
	}
	rates := []buckets.Rate{buckets.PerSecond(1), buckets.PerSecond(7), buckets.PerSecond(20), {Events: 3, Period: 10 * time.Second}}
	tenants := 1 + r.IntN(4)
	tenant := func(i int, rate buckets.Rate) Tenant {
		return Tenant{Name: fmt.Sprint("t", i), Policy: model.Policy{Rate: rate, Depth: 1_000_000, Weight: 1 + r.Int64N(3), MaxAttempts: 1000},
			Runs: time.Duration(r.IntN(100)) * time.Millisecond}
	}
	switch seed % 3 {
	case 0:
		s.For = time.Minute
		for i := range tenants {
			t := tenant(i, pick(r, rates...))
			t.Backlog = int(s.For/t.Policy.Rate.Interval()) + 10
			s.Tenants = append(s.Tenants, t)
		}
		for i := range s.Pools {
			s.Pools[i] = 20 // so that places do not bind
		}
	case 1:
		s.For = 2 * time.Minute
		s.Faults = Faults{PoolCrash: 20 * time.Second, SchedulerCrash: 30 * time.Second, Restart: 30 * time.Second, Away: 3 * time.Second,
			Forgets: 0.5, LostTicket: 0.01, LostReply: 0.005}
		if r.IntN(2) == 0 {
			s.Policy.Rate = pick(r, buckets.PerSecond(10), buckets.PerSecond(30))
			s.Policy.Shared = r.IntN(2) == 0
		}
		for i := range tenants {
			t := tenant(i, pick(r, rates...))
			t.Backlog, t.Load, t.Fails = r.IntN(20), 1.2*r.Float64(), 0.3*r.Float64()
			if r.IntN(2) == 0 {
				t.Policy.MaxInFlight = 1 + r.Int64N(4)
			}
			s.Tenants = append(s.Tenants, t)
		}
		if r.IntN(3) == 0 { // processes crash for a reason, and the reason is to be found
			s.Faults.PoolCrash, s.Policy.MaxCrashes = 0, 3
			for i := range s.Tenants {
				s.Tenants[i].Runs, s.Tenants[i].Policy.MaxInFlight = 3*time.Second, 0 // so that many run when it happens
			}
			t := &s.Tenants[r.IntN(len(s.Tenants))]
			t.Poison, t.Backlog = 1+r.IntN(2), t.Backlog+2
		}
	case 2:
		s.For, s.Poll, s.Policy.Lease = 20*24*time.Hour, time.Hour, time.Hour
		s.Faults = Faults{PoolCrash: 50 * time.Hour, Restart: pick(r, time.Hour, 23*time.Hour), Away: 10 * time.Second, Forgets: 0.3}
		for i := range tenants {
			rate := buckets.Rate{Events: 1, Period: pick(r, time.Hour, 5*time.Hour, 24*time.Hour)}
			t := tenant(i, rate)
			t.Backlog = int(s.For/rate.Interval()) + 5
			s.Tenants = append(s.Tenants, t)
		}
	}
	return s
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }
