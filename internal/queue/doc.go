// Package queue is the protocol of a downstream's queue in Redis: what producers, schedulers,
// workers and operators must agree on. Package shaper builds on it what users need, and package
// workers what runs jobs.
//
// Every change to a queue is one script (lua/), which may be run twice with the same arguments.
// Package model specifies what the scripts do. A Queue runs them and names the keys, Reply reads
// their answers, and Body is how a job is kept.
//
// A Gate is a worker's side. It takes a Ticket, which a scheduler has released, and grants a job,
// its slot, and the token that owns the start. Beat keeps the lease, Again gets another slot when
// one was missed, and Finish records how the start ended, and may grant the next. A Listener hears
// signals, which save everybody a wait.
//
// This package knows of policies only what package shaper gives to Define. It does not check names
// and clients; its callers have done so.
package queue
