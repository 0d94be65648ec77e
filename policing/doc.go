// Package policing refuses what offers too much, and says what to do about it.
//
// A Policer is a chain of named Rules, each an algorithm of package buckets applied per
// tenant, per downstream or to all together. The package promises that
//
//   - a check is all or nothing: where one rule refuses, no rule has taken anything; in
//     Redis that is one script, and so one round trip;
//   - a refusal names the rule, and the least wait after which the same request would
//     pass every rule;
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
// where Redis is away, failure.go does. Waiter (wait.go) waits until a request may pass. Package
// httplimit puts a Checker before any http.Handler. Hybrid (hybrid.go, lease.go) is a limiter that
// leases tokens from Redis and decides without it; Single makes a Checker of it. Hitters counts who
// offers the most (sketch.go: in memory that does not grow), and is what a rule for heavy keys
// asks. Named and Judge are for a Checker other than ours.
package policing
