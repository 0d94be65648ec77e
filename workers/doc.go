// Package workers runs released jobs on asynq.
//
// A Pool promises that
//
//   - every start of a handler owns a slot that the downstream's gate granted, and happens no
//     earlier than the slot and at most the tolerance after it, whichever way its ticket came:
//     first try, retry, crash recovery, asynq's own recoverer, a requeue by hand;
//   - only the owner of a job's last start records its end, and asynq never retries a job;
//   - a handler keeps its place until it returns, even if it ignores its context;
//   - once Stop has begun nothing starts, and what could not end within the grace is handed back
//     without being charged.
//
// A start is the handler's first instruction. A handler that first has to connect, or to load a
// program, can do that before the slot: it implements Preparer, as those of package target do, and
// its start is what follows Slot.Wait.
//
// A handler that was written for asynq runs as it is: its context and its task are asynq's own (see
// New), and the callbacks of an asynq.Config are fields of Config. docs/migrating-from-asynq.md
// says what is different.
//
// asynq carries tickets, not jobs: see package internal/queue, and docs/architecture.md for what
// can go wrong in between.
package workers
