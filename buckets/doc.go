// Package buckets holds the arithmetic of rate limiting and shaping: exact
// rates, and the algorithms that decide from a state, an instant and a cost.
//
// The package promises that
//
//   - every computation is exact: instants are whole microseconds, rates are
//     fractions of events per period, and remainders are kept, so nothing drifts;
//   - a refusal changes no state, and says how long the least wait is that works;
//   - the clock of a key never goes back: an older instant counts as the newest
//     one seen.
//
// It knows nothing of jobs, queues, HTTP or tenants.
package buckets
