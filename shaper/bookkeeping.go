package shaper

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jobshaper/jobshaper/internal/again"
)

const (
	// bookPause is how long the bookkeeper rests between two calls, none of which takes Redis more
	// than one or two milliseconds.
	bookPause = 10 * time.Millisecond
	// idleBefore is how long before a scheduler's first look a tenant may have become idle and
	// still be looked at.
	idleBefore = 10 * time.Minute
)

// keepBooks compares the books again and again until ctx ends. Tenants that stay idle cost nothing.
func (s *Scheduler) keepBooks(ctx context.Context) {
	b := &bookkeeper{q: s.q, mend: true, pause: bookPause}
	wait := time.Duration(rand.Int64N(int64(s.opts.Books)) + 1) // so that several schedulers look at different times
	since, failing := time.Time{}, false
	for again.Sleep(ctx, wait) {
		wait = s.opts.Books
		begun, err := s.q.RDB.Time(ctx).Result()
		if err == nil {
			if since.IsZero() {
				since = begun.Add(-idleBefore)
			}
			var faults []BookFault
			faults, err = b.pass(ctx, since)
			s.tell(faults)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			since, failing = begun, false
		case !failing:
			failing = true
			s.opts.Logger.Warn("the books could not be compared, trying again", "err", err, "in", wait)
		}
	}
}

func (s *Scheduler) tell(faults []BookFault) {
	for _, f := range faults {
		if f.parked() {
			s.opts.Logger.Warn(bookFaults[f.Kind].wrong, "count", f.Count, "one", f.Example())
			continue
		}
		s.opts.Logger.Warn("the books were wrong: "+bookFaults[f.Kind].wrong, "kind", f.Kind, "count", f.Count, "one", f.Example(), "now", f.Mended())
	}
	if faults = slices.DeleteFunc(faults, BookFault.parked); s.opts.OnMended != nil && len(faults) > 0 {
		s.opts.OnMended(faults)
	}
}
