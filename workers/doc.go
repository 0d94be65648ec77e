// Package workers runs released jobs on asynq.
//
// A Pool promises that
//
//   - every start of a handler owns a slot that the downstream's gate granted, and happens between
//     it and the tolerance after it, whichever way its ticket came: first try, retry, crash
//     recovery, asynq's own recoverer, a requeue by hand;
//   - a job's end is taken down by the owner of its last start only, and asynq never retries a job;
//   - a handler keeps its place until it returns, also when it ignores its context;
//   - after Stop began nothing starts, and what could not end within the grace is handed back
//     without being charged.
//
// A handler that was written for asynq runs as it is: its context and its task are asynq's own (see
// New), and the callbacks of an asynq.Config are fields of Config. docs/migrating-from-asynq.md
// tells what is different.
//
// asynq carries tickets, not jobs: see package internal/queue, and docs/architecture.md for what
// can go wrong in between.
package workers
