package e2e

import (
	"context"
	"errors"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// ledger knows which accepted jobs have not come to an end, by a history that grows. It holds
// nothing of those that have, so that it serves for hours. Jobs that end without a handler (dead,
// cancelled) are looked up in Redis, and their ends written down.
type ledger struct {
	rig    *rig
	reader history.Reader
	open   map[name]int64 // when it was accepted, or last looked up
	starts int
}

type name struct{ tenant, id string }

func newLedger(r *rig) *ledger {
	r.t.Helper()
	l := &ledger{rig: r, open: map[name]int64{}}
	r.must(l.reader.Open(r.path))
	r.t.Cleanup(func() { l.reader.Close() })
	return l
}

// read follows the history.
func (l *ledger) read() {
	l.rig.t.Helper()
	h, err := l.reader.Next()
	l.rig.must(err)
	for _, e := range h {
		switch e.Kind {
		case history.Accept:
			l.open[name{e.Tenant, e.ID}] = e.At
		case history.Start:
			l.starts++
		}
	}
	// An end may be written before the answer to the offer; see look for one that is written long
	// before.
	for _, e := range h {
		if e.Kind == history.End && history.Final(e.Outcome) {
			delete(l.open, name{e.Tenant, e.ID})
		}
	}
}

// look looks up what has been open for longer than d since it was last looked up. While Redis is
// away it does nothing.
func (l *ledger) look(d time.Duration) {
	l.rig.t.Helper()
	now := history.Now()
	for n, at := range l.open {
		if at > now-int64(d) {
			continue
		}
		job, err := l.rig.client.Find(context.Background(), n.tenant, n.id)
		if errors.Is(err, shaper.ErrStore) {
			return
		}
		l.open[n] = now
		if errors.Is(err, shaper.ErrNotFound) {
			// It may have ended, and been forgotten, since. If not, it is lost, and stays open.
			continue
		}
		l.rig.must(err)
		switch {
		case job.State == shaper.StateDone: // its handler wrote that down, perhaps before the producer its answer
			delete(l.open, n)
		case job.State.Ended():
			l.ended(n, string(job.State))
		}
	}
}

// ended writes down how a job ended.
func (l *ledger) ended(n name, outcome string) {
	l.rig.must(l.rig.rec.Record(history.Event{Kind: history.End, Tenant: n.tenant, ID: n.id, Outcome: outcome}))
	delete(l.open, n)
}
