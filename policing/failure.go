package policing

import (
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// FailurePolicy says what a rule answers while Redis does not.
type FailurePolicy int

const (
	// FailOpen admits, and counts what it admitted. The zero value.
	FailOpen FailurePolicy = iota
	// FailClosed refuses, as unavailable: over HTTP 503, not 429.
	FailClosed
	// FailLocal decides in the process's memory by its share of the limit: the limit and
	// the rate divided by Config.Nodes, rounded down, at least 1. A request that costs more
	// than the share is refused as unavailable. What was admitted so is not told to Redis
	// afterwards.
	FailLocal
)

var failureNames = []string{FailOpen: "open", FailClosed: "closed", FailLocal: "local"}

// String returns the policy as a rule's text has it: "open", "closed", "local".
func (f FailurePolicy) String() string { return nameOf(failureNames, int(f)) }

// ParseFailurePolicy reads what String writes.
func ParseFailurePolicy(text string) (FailurePolicy, error) {
	i, err := indexOf(failureNames, "on_failure", text)
	return FailurePolicy(i), err
}

// share returns one node's part of a limit. A rate stays exact: its period is
// multiplied, unless that exceeds what a Rate can hold.
func share(s buckets.Spec, nodes int) buckets.Spec {
	n := int64(nodes)
	s.Limit = max(1, s.Limit/n)
	if s.Rate.Period <= buckets.MaxPeriod/time.Duration(n) {
		s.Rate.Period *= time.Duration(n)
	} else {
		s.Rate.Events = max(1, s.Rate.Events/n)
	}
	return s
}

// local returns what a node enforces by itself: its share, where the rule asks for one.
func (r Rule) local(nodes int) buckets.Spec {
	if r.OnFailure != FailLocal {
		return r.Spec
	}
	return share(r.Spec, nodes)
}
