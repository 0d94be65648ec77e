// Package queue is the protocol of a downstream's queue in Redis: what producers, schedulers,
// workers and operators must agree on. Package shaper stands on it with what users need, package
// workers with what runs jobs.
//
// Every change to a queue is one script (lua/), which may be run twice with the same arguments;
// what the scripts ought to do, package model says. A Queue runs them and names the keys, Reply
// reads their answers, Body is how a job is kept.
//
// A Gate is a worker's side. It takes a Ticket, which a scheduler has released, and grants a job,
// its slot, and the token that owns the start. Beat keeps the lease, Again gets another slot where
// one was missed, Finish records how the start ended, and may grant the next. A Listener hears
// signals, which save everybody a wait.
//
// Of policies this package knows what package shaper gives to Define. Names and clients its callers
// have checked.
package queue
