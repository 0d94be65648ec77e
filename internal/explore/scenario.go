package explore

import (
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/model"
)

// Scenario is a small world: who is there, and how often each thing may go wrong.
type Scenario struct {
	Name    string
	Policy  model.DownstreamPolicy
	Tenants []Tenant
	Pools   []int // places of each
	Faults  Faults
	Other   buckets.Rate  // what a change of rate changes to, and back
	Within  time.Duration // in which all has ended once nothing goes wrong any more

	// Break returns the queue that a call goes to, which may be broken on purpose; nil = the model.
	Break func(*model.Downstream) Queue
}

// Tenant is one tenant with its jobs, which it offers one after another, whenever it likes.
type Tenant struct {
	Name   string
	Policy model.Policy
	Jobs   int
	Poison int // how many of them, the last ones, take their process down whenever they run
}

// Queue is the calls of a model.
type Queue interface {
	model.Queue
	Restart()
}

// Fault is something that may go wrong, or be ordered, at any moment.
type Fault int

const (
	Crash    Fault = iota // a pool dies, and another one is there at once
	Cut                   // a pool is cut off from Redis, or stands still, until it is not
	Restart               // Redis is another one, and knows all that it knew
	Away                  // the same, after it was away for longer than a lease
	Forget                // Redis is another one, and has forgotten up to its last second
	Lose                  // asynq loses a ticket
	Double                // asynq doubles a ticket
	Reply                 // the reply to a call is lost, so it is repeated, at once or later
	Slow                  // a ticket, a start or the scheduler takes as long as it likes
	Fail                  // a handler fails
	Throttle              // the downstream asks to slow down
	Back                  // a worker hands back a start, or a ticket
	Cancel                // somebody cancels a job
	Pause                 // a tenant is paused, for half a second
	Stop                  // a tenant is paused until somebody resumes it
	Change                // a tenant's rate is changed
	kinds
)

// Faults is how often each may happen.
type Faults [kinds]int8

func (t *Tenant) poisonous(nth int) bool { return nth >= t.Jobs-t.Poison }

// poisons is how many poisonous jobs there are.
func (s *Scenario) poisons() (n int) {
	for _, t := range s.Tenants {
		n += t.Poison
	}
	return n
}

func interval(r buckets.Rate) int64 { return r.Period.Microseconds() / r.Events }

// longest is the longest interval that is ever in force, in µs.
func (s *Scenario) longest() (iv int64) {
	for _, r := range []buckets.Rate{s.Other, s.Policy.Rate} {
		if !r.IsZero() {
			iv = max(iv, interval(r))
		}
	}
	for _, t := range s.Tenants {
		iv = max(iv, interval(t.Policy.Rate))
	}
	return iv
}
