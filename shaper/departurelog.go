package shaper

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/setting"
)

// LogKind says what an entry of the departure log tells.
type LogKind byte

const (
	LogGranted LogKind = 'g' // a slot was granted
	LogEnded   LogKind = 'f' // a start ended, and its worker said so
	LogLost    LogKind = 'x' // the lease of a start ended
	LogPaused  LogKind = 'p' // a tenant was paused by hand, or the downstream
	LogResumed LogKind = 'r' // that pause ended
	LogRestart LogKind = 'i' // Redis restarted or failed over
	LogOpened  LogKind = 'o' // the log was turned on
	LogNoise   LogKind = '?' // it cannot be read; none of our scripts wrote it
)

// LogEntry is one entry of the departure log. Fields that do not apply are zero.
type LogEntry struct {
	At      time.Time // when it was written, in whole ms of Redis' clock
	Kind    LogKind
	Tenant  string // empty = the downstream
	ID      string
	Attempt int

	// Of LogGranted.
	Slot      time.Time
	Granted   time.Time // when, by Redis' clock
	Rate      buckets.Rate
	Common    buckets.Rate // of the downstream; zero = none
	Tolerance time.Duration
	Missed    time.Time     // the slot that the start missed, and that this one replaces
	Keep      time.Duration // how late the slot may be while the tenant keeps its place, see SharedSpacing; zero = not at all

	// Of LogEnded.
	Became string // done, retry, dead, cancelled, back or throttled
	Began  bool   // the handler began; if neither this nor Never is set, its worker does not know
	Never  bool   // the slot passed without a start

	// Late is from the slot to the start, by the worker's monotonic clock: to the first byte of an
	// HTTP target's request, the release of an exec target's program, or the first instruction of
	// any other handler.
	Late time.Duration

	Blamed bool // of LogLost: that counts against max_crashes

	Took  time.Duration // of LogEnded and LogLost: from the slot until then
	Until time.Time     // of LogPaused; zero = without an end
}

// DepartureLog reads the departure log, oldest entry first, and calls each with every entry; if
// each returns an error, it ends with that. A since of more than 0 leaves out what was written
// longer ago. Entries that are written meanwhile are left out too.
//
// The log holds each slot that was granted and how its start ended, about as many entries as the
// downstream's policy says. It is written inside the scripts, so it costs no round trip, and what
// it says of a start is as durable as the start's own state.
func (a *Admin) DepartureLog(ctx context.Context, since time.Duration, each func(LogEntry) error) error {
	const page = 1000
	key := a.q.LogKey()
	last, err := a.q.RDB.XRevRangeN(ctx, key, "+", "-", 1).Result()
	if err != nil {
		return a.q.Failed(ctx, "read departure log", err)
	}
	if len(last) == 0 {
		return a.seen(ctx)
	}
	from := "-"
	if since > 0 {
		now, err := a.now(ctx)
		if err != nil {
			return err
		}
		from = strconv.FormatInt(max(0, now.Add(-since).UnixMilli()), 10)
	}
	for {
		l, err := a.q.RDB.XRangeN(ctx, key, from, last[0].ID, page).Result()
		if err != nil {
			return a.q.Failed(ctx, "read departure log", err)
		}
		for _, m := range l {
			if err := each(readEntry(m)); err != nil {
				return err
			}
		}
		if len(l) < page {
			return nil
		}
		ms, n := splitID(l[len(l)-1].ID)
		from = fmt.Sprintf("%d-%d", ms, n+1)
	}
}

// now reads the clock of the Redis that keeps the downstream.
func (a *Admin) now(ctx context.Context) (time.Time, error) {
	v, err := a.q.Run(ctx, queue.StatsScript, "read the clock")
	if err != nil {
		return time.Time{}, err
	}
	return queue.ReplyOf(v).Instant(), nil
}

// splitID reads the id of a stream's entry, "ms-n".
func splitID(id string) (ms, n int64) {
	a, b, _ := strings.Cut(id, "-")
	return atoi(a), atoi(b)
}

// readEntry reads what internal/queue/lua/lib/log.lua wrote.
func readEntry(m redis.XMessage) LogEntry {
	ms, _ := splitID(m.ID)
	text, _ := m.Values["e"].(string)
	e := LogEntry{At: time.UnixMilli(ms)}
	if !e.read(strings.Split(text, " ")) {
		e = LogEntry{At: e.At, Kind: LogNoise}
	}
	return e
}

// entryWords is how many words the entries of a kind have, at least and at most: grants may end with
// Keep, and lost leases did not always end with whose fault it is.
var entryWords = map[LogKind][2]int{LogGranted: {10, 11}, LogEnded: {7, 7}, LogLost: {5, 6}, LogPaused: {3, 3}, LogResumed: {2, 2},
	LogRestart: {1, 1}, LogOpened: {1, 1}}

func (e *LogEntry) read(w []string) (ok bool) {
	if len(w[0]) != 1 {
		return false
	}
	if n := entryWords[LogKind(w[0][0])]; len(w) < n[0] || len(w) > n[1] {
		return false
	}
	e.Kind, ok = LogKind(w[0][0]), true
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		ok = ok && err == nil
		return n
	}
	rate := func(s string) buckets.Rate {
		r := setting.RecallRate(s)
		ok = ok && r.Validate() == nil
		return r
	}
	us := func(s string) time.Duration { return time.Duration(number(s)) * time.Microsecond }
	if len(w) > 1 && w[1] != "-" {
		e.Tenant = w[1]
		ok = ValidName("tenant", e.Tenant) == nil
	}
	if len(w) > 3 {
		e.ID, e.Attempt = w[2], int(number(w[3]))
		ok = ok && e.Tenant != "" && ValidName("id", e.ID) == nil
	}
	switch e.Kind {
	case LogGranted:
		e.Slot = queue.Instant(number(w[4]))
		e.Granted = e.Slot.Add(-us(w[5]))
		e.Rate, e.Tolerance, e.Missed = rate(w[6]), us(w[8]), queue.Instant(number(w[9]))
		if w[7] != "-" {
			e.Common = rate(w[7])
		}
		if len(w) > 10 {
			e.Keep = us(w[10])
		}
	case LogEnded:
		e.Became, e.Took = w[4], us(w[6])
		if e.Never = w[5] == "-"; !e.Never && w[5] != "?" {
			e.Began, e.Late = true, us(w[5])
		}
	case LogLost:
		e.Took, e.Blamed = us(w[4]), w[len(w)-1] == "blamed"
	case LogPaused:
		if until := number(w[2]); until < queue.Forever {
			e.Until = queue.Instant(until)
		}
	}
	return ok
}
