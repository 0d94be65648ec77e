// Package queue is the protocol of a downstream's queue in Redis: what producers, schedulers, workers and
// operators must agree on, in whatever process and version they are. Package shaper stands on it with what users
// need, and package workers with what runs jobs; nobody else imports it.
//
// Every change to a queue is one script (lua/), which may be run twice with the same arguments: go-redis repeats
// a call whose answer was lost. What the scripts ought to do, package model says. A Queue runs them and names the
// keys; Reply reads what they answer, Body is how a job is kept, and a WRONGTYPE is told with the key that it is of.
//
// A Gate is a worker's side. A Ticket, which a scheduler has released, is taken to Enter and answered with a Grant:
// a job, its slot, and the token that proves who owns the start. Beat keeps its lease, Again gets another slot where
// one was missed, Finish records how the start ended, and may grant the next. A Listener hears the signals that save
// everybody a wait.
//
// This package knows nothing of policies but the names of their fields, which package shaper gives to Define.
// Names are checked by whoever takes them from a user; none here is.
package queue
