// Package buckets holds the arithmetic of rate limiting and shaping: exact
// rates, and the algorithms that decide from a state, an instant and a cost.
//
// The package promises that
//
//   - every computation is exact: instants are whole microseconds, rates are
//     fractions of events per period, and remainders are kept, so nothing drifts;
//   - a refusal changes no state, and says after what wait, at the least, the same request would
//     pass;
//   - a key's clock never runs backwards: an instant older than the newest one seen counts as that
//     one; and a clock that really was set back stalls nobody for long.
//
// It knows nothing of jobs, queues, HTTP or tenants.
//
// # What is where
//
// LeakyQueue makes what arrives wait for its turn, and Timeline is the sequence of
// turns. The other five admit or refuse: FixedWindow, SlidingLog, SlidingCounter,
// TokenBucket and LeakyBucket (as a meter), each described by its Params. Each exists
//
//   - as a function of state, instant and cost: WindowState, LogState, CounterState and
//     BucketState, with their Take methods;
//   - for many keys in one process: Memory;
//   - for many keys and processes: Redis, whose scripts (lua/*.lua) implement the same functions
//     once more.
//
// LeakyQueue and Timeline exist as functions and as a script, which the queue of package shaper
// runs.
//
// Memory and Redis are Limiters and give the same answers, to the microsecond: one test suite runs
// against both, with the vectors of testdata/generate.py, the exact specification.
package buckets
