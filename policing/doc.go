// Package policing refuses requests that exceed their limits, and says when to try again.
//
// A Policer is a chain of named Rules, each an algorithm of package buckets applied per
// tenant, per downstream or globally. The package promises that
//
//   - a check is all or nothing: where one rule refuses, no rule has taken anything; in
//     Redis that is one script, and so one round trip;
//   - a refusal names the rule, and the shortest wait after which the same request would pass every
//     rule;
//   - a refusal is never taken for a failure of Redis, nor a failure for a refusal: when
//     Redis does not answer within a deadline, each rule's own FailurePolicy decides, a
//     breaker spares the calls that follow the wait, and the Verdict says so;
//   - memory is bounded, whatever keys are offered.
//
// It knows nothing of jobs, nor of the queues that package shaper keeps in Redis.
//
// # What is where
//
// Rule, ParseRule and RuleOf (rule.go, parse.go) say what is limited; Policer.Check decides, and
// while Redis is away, failure.go does. Waiter (wait.go) waits until a request may pass. Package
// httplimit puts a Checker in front of any http.Handler. Hybrid (hybrid.go, lease.go) is a limiter
// that leases tokens from Redis and then decides locally; Single makes a Checker of it. Hitters
// counts who offers the most (sketch.go: in memory that does not grow); rules for heavy keys ask
// it. Named and Judge are for those who write a Checker of their own.
package policing
