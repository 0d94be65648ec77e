// Package buckets holds the arithmetic of rate limiting and shaping: exact
// rates, and the algorithms that decide from a state, an instant and a cost.
//
// The package promises that
//
//   - every computation is exact: instants are whole microseconds, rates are
//     fractions of events per period, and remainders are kept, so nothing drifts;
//   - a refusal changes no state, and says how long the least wait is that works;
//   - the clock of a key never goes back: an older instant counts as the newest
//     one seen; and a clock that was really set back stalls nobody for long.
//
// It knows nothing of jobs, queues, HTTP or tenants.
//
// # What is where
//
// LeakyQueue makes what arrives wait for its turn, and Timeline is the sequence of
// turns. The five others admit or refuse: FixedWindow, SlidingLog, SlidingCounter,
// TokenBucket and LeakyBucket (as a meter), each described by its Params. Each exists
//
//   - as a function of state, instant and cost: WindowState, LogState, CounterState and
//     BucketState, with their method Take;
//   - for many keys in one process: Memory;
//   - for many keys and processes: Redis, whose scripts (lua/*.lua) are a second writing
//     of the same functions.
//
// LeakyQueue and Timeline are functions, and a script; the queue of package shaper runs it.
//
// Memory and Redis are Limiters, and answer the same to the microsecond: one suite runs
// over both, with the vectors of testdata/generate.py, the exact specification.
package buckets
