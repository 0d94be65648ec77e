// Package history writes down what happened to jobs, and checks it against what was promised.
//
// All who take part (producers, handlers, whoever kills processes) append events to one
// file through a Recorder. An event is one line of JSON and one write to a file that is open for
// appending, so lines of several processes do not mix, and what was written survives kill -9 of its
// writer. Events carry the host's monotonic clock, which all its processes share and which nobody
// can step.
//
// Read returns a History, and each check (Spacing, Windows, Slots, OnTime, Attempts, Ends,
// OneOwner, Duplicated, Order, Lost, Unexpected, Unanswered, Level, Bound, InFlight) returns the
// violations that it finds in one; Judge runs those that apply whatever was broken, over a file of
// hours, and Arrivals those that apply to what a downstream saw. They judge what was seen, not what
// was meant: they know nothing of how jobs are scheduled. A check that cannot fail is no check, so
// each is tested with histories that it must reject.
package history
