// Package shaper keeps jobs in bounded queues, one for each tenant of a downstream, and lets them
// leave one at a time at an exact rate: the leaky bucket as a queue, in Redis.
//
// A downstream is something fragile; its tenants produce jobs for it. The package promises that
//
//   - every start of a job owns a slot of its tenant's timeline, and slots are at least one
//     interval (1/rate) apart, however many schedulers and workers there are, and through retries,
//     crashes, pauses, changed rates, restarts and steps of the clock; idle time earns nothing;
//   - with a backlog the rate is kept, without drift: the 700th slot at 7/s is 100 s after the
//     first;
//   - a job that was accepted is run to an end (done, dead, expired, cancelled, or dropped by a
//     policy that its tenant chose). It runs at least once; a start is repeated only if a worker
//     died or was cut off, or Redis lost what it had acknowledged. Its attempts strictly increase,
//     and only the owner of the last one can end it;
//   - a job that is refused leaves no trace, and its producer is told why, and when to try again;
//   - no more jobs wait than the tenant's depth, whatever the number of producers. What was
//     accepted before and comes back is never refused, so level ≤ depth + in flight;
//   - first attempts of a tenant start in the order of acceptance, and what comes back goes ahead;
//   - a tenant delays no other beyond what they share, and what they share is shared by weight.
//
// # What is where
//
// A Client offers jobs: Offer one, OfferMany in few round trips, Enqueue an asynq task. A refusal
// is a Result, not an error. An Admin sets policies (Policy, DownstreamPolicy), pauses, looks at
// tenants and jobs, and reads the departure log. A Scheduler releases tickets for jobs whose slots
// are near and hands them to a Dispatcher; package workers has one on asynq, and the pools that run
// the jobs. How these agree is no part of the API: scripts, keys, tickets, and the gate, where a
// pool is granted slots and reports what came of them, are in internal/queue.
//
// Redis' clock alone tells the time. Every change is one script, which may be run twice with the
// same arguments: go-redis repeats a call whose answer was lost. All keys of a downstream carry its
// name as hash tag, so it lives on one node of a Redis Cluster. docs/architecture.md explains all
// of this.
//
// All types are safe for concurrent use unless they say otherwise. Errors wrap ErrInvalid (the
// input cannot be used and nothing changed), ErrNotFound, or ErrStore (whether the call took effect
// is unknown; repeat it).
package shaper
