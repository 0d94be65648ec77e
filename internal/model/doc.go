// Package model is the queue as it ought to behave: its executable specification. A Downstream is
// all that Redis holds of a downstream, as plain values; each method is one script of the queue. It
// changes the state as the script does, and returns what the script returns. The caller sets the
// clock.
//
// The tests of package shaper make the same random calls of the model and of the scripts, and
// compare every answer and the whole state after each. So what is written here is what the scripts
// do, to the µs, and a simulation built on it is no second opinion.
//
// What is said where:
//
//	model.go     what a downstream, a tenant and a job are, and a job's states
//	policy.go    the limits in force, and how they and pauses are set
//	timeline.go  which slot a start gets, and when the next ticket is likely to leave
//	offer.go     what is accepted into a bucket, what is refused, what is known already
//	bucket.go    the order in a bucket: what came back, what was never out, what is not due yet
//	file.go      when a scheduler has to look at a tenant
//	pick.go      whose job leaves next, and which
//	release.go   which tickets go out, and how lost ones and lost workers are made good
//	apart.go     who is to blame for a worker that vanished, and how that is found out
//	start.go     the gate: a ticket starts the oldest job that is out, in a slot of its own
//	finish.go    what becomes of a job whose start ended, and the next one for its worker
//	admin.go     cancel, purge, dead jobs
//	pool.go      places of workers, and leases
//	expect.go    when a job is expected to start
//	bytime.go    how far down a bucket jobs start by time alone
//	log.go       the departure log
//	queue.go     all calls in one list
//	run.go       arrivals played to their end in virtual time
//
// Instants are µs since the epoch, on the one clock of the downstream. Books are ordered by instant
// and then by name, as Redis orders them.
//
// Left out, and covered by tests of their own: a clock that steps back, admission rules, tenants
// that are refused because nobody set them, results and texts of jobs, signals, and how long a job
// is remembered once it has ended or is dead: here it is known until Forget. The scripts do at most
// fifty of a kind per call and ask to be called again; the model does all at once.
package model
