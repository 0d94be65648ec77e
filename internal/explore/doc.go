// Package explore follows everything that can happen in a small downstream: from each state each
// step, until there are no new states. Where package sim draws long plays of large worlds at
// random, this leaves nothing out of small ones.
//
// What is explored is model.Downstream itself, which the tests of package shaper compare with the
// scripts; around it is a world of tickets, pools, starts and a Redis that restarts. A breach comes
// with the shortest way there, in words. docs/model/README.md says what is covered and what is not.
//
//	scenario.go   what a small world consists of, and what may go wrong in it
//	scenarios.go  those that are explored
//	world.go      a state of everything
//	step.go       what may happen next
//	act.go        what it does
//	time.go       how time passes, from one instant at which something may happen to the next
//	record.go     what happened, and the promises about starts and ends
//	check.go      the promises about what the queue holds
//	key.go        which states are the same
//	explore.go    the exploration, and a check that keys tell apart what has to be
//	live.go       from every state all comes to an end if nothing goes wrong any more
//	trace.go      the way to a state, in words
package explore
