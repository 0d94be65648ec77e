package shaper

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// departures writes the log as text: the time since t0 in ms, and what happened.
func (w *world) departures() string {
	w.t.Helper()
	var b strings.Builder
	w.must(w.admin.DepartureLog(w.t.Context(), 0, func(e LogEntry) error {
		ms := func(t time.Time) string { return fmt.Sprint(float64(t.UnixMicro()-t0) / 1000) }
		fmt.Fprintf(&b, "%c", e.Kind)
		if e.Tenant != "" {
			fmt.Fprint(&b, " ", e.Tenant)
		}
		if e.ID != "" {
			fmt.Fprintf(&b, " %s %d", e.ID, e.Attempt)
		}
		switch e.Kind {
		case LogGranted:
			fmt.Fprintf(&b, " at %s for %s, %v", ms(e.Granted), ms(e.Slot), e.Rate)
			if !e.Common.IsZero() {
				fmt.Fprintf(&b, " of %v", e.Common)
			}
			if !e.Missed.IsZero() {
				fmt.Fprint(&b, " instead of ", ms(e.Missed))
			}
		case LogEnded:
			fmt.Fprintf(&b, " %s began %v never %v late %v after %v", e.Became, e.Began, e.Never, e.Late, e.Took)
		case LogLost:
			fmt.Fprintf(&b, " after %v, blamed %v", e.Took, e.Blamed)
		case LogPaused:
			if !e.Until.IsZero() {
				fmt.Fprint(&b, " until ", ms(e.Until))
			}
		}
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}

// logged is a world whose log is on, with one pool, and tenant a at 10/s.
func logged(t testing.TB, rdb redis.UniversalClient) *world {
	w := newWorld(t, rdb)
	w.setDownstream(DownstreamPolicy{DepartureLog: 1000})
	w.set("a", Policy{Rate: rate(10, time.Second)})
	w.pool("p", 4)
	return w
}

// TestDepartureLog does everything that is logged, making every call twice: it is logged once.
func TestDepartureLog(t *testing.T) {
	t.Parallel()
	for _, store := range []struct {
		name string
		open func(testing.TB) redis.UniversalClient
	}{{"redis", redistest.Open}, {"miniredis", func(t testing.TB) redis.UniversalClient { return redistest.Mini(t) }}} {
		t.Run(store.name, func(t *testing.T) {
			for _, tc := range []struct {
				name string
				play func(w *world)
				want string // after "o"
			}{
				{"a start and its end", func(w *world) {
					w.offers("a", 1)
					g := w.start()
					w.pass(30 * milli)
					f := queue.Finish{Ending: queue.EndOK, Began: queue.BeganAfter(1500 * time.Microsecond)}
					w.finish(g, f)
					w.finish(g, f)
				}, `
					g a a1 1 at 0.001 for 0.001, 10/s
					f a a1 1 done began true never false late 1.5ms after 30ms`},
				{"a failure, a throttle, a chain", func(w *world) {
					w.offers("a", 2)
					g := w.start()
					w.pass(100 * milli)
					f := queue.Finish{Ending: queue.EndError, Delay: time.Second, Next: queue.NewToken("p")}
					_, next := w.finish(g, f)
					w.finish(g, f)
					w.finish(next, queue.Finish{Ending: queue.EndThrottled, Delay: time.Second, Began: queue.BeganAfter(0)})
				}, `
					g a a1 1 at 0.002 for 0.002, 10/s
					g a a2 1 at 100.002 for 100.002, 10/s
					f a a1 1 retry began false never false late 0s after 100ms
					f a a2 1 throttled began true never false late 0s after 0s`},
				{"a missed slot", func(w *world) {
					w.setDownstream(DownstreamPolicy{Rate: rate(5, time.Second)})
					w.offers("a", 1)
					g := w.start()
					w.pass(150 * milli)
					token := queue.NewToken("p")
					for range 2 {
						_, _, err := w.gate.Again(w.t.Context(), g, token)
						w.must(err)
					}
				}, `
					g a a1 1 at 0.001 for 0.001, 10/s of 5/s
					g a a1 1 at 150.001 for 200.001, 10/s of 5/s instead of 0.001`},
				{"a missed slot, and a pause", func(w *world) {
					w.offers("a", 1)
					g := w.start()
					w.pass(50 * milli)
					for range 2 {
						w.must(w.admin.Pause(w.t.Context(), "a", time.Second))
						_, _, err := w.gate.Again(w.t.Context(), g, queue.NewToken("p"))
						w.must(err)
					}
					for range 2 {
						w.must(w.admin.Resume(w.t.Context(), "a"))
						w.must(w.admin.Pause(w.t.Context(), "", -1))
					}
				}, `
					g a a1 1 at 0.001 for 0.001, 10/s
					p a until 1050.001
					f a a1 1 back began false never true late 0s after 50ms
					r a
					p`},
				{"a lost lease", func(w *world) {
					w.offers("a", 1)
					w.start()
					for range 5 { // releases go on, so that the lease is over when it ends
						w.pass(4 * second)
						w.release(0)
						w.release(0)
					}
				}, `
					g a a1 1 at 0.001 for 0.001, 10/s
					x a a1 1 after 16s, blamed true`},
				{"another Redis", func(w *world) {
					w.must(w.rdb.HSet(w.t.Context(), w.q.DownstreamKey(), "rid", "other").Err())
					w.release(0)
					w.release(0)
				}, `
					i`},
				{"turned on again", func(w *world) {
					for range 2 {
						_, err := w.admin.Apply(w.t.Context(), DownstreamPolicy{}, nil)
						w.must(err)
					}
					w.offers("b", 1)
					w.start()
					if ttl := w.rdb.PTTL(w.t.Context(), w.q.LogKey()).Val(); ttl <= 0 {
						w.t.Errorf("a log that is off stays for %v, want an end", ttl)
					}
					w.setDownstream(DownstreamPolicy{DepartureLog: 1000})
					if ttl := w.rdb.PTTL(w.t.Context(), w.q.LogKey()).Val(); ttl > 0 {
						w.t.Errorf("a log that is on ends in %v", ttl)
					}
				}, `
					o`},
			} {
				t.Run(tc.name, func(t *testing.T) {
					w := logged(t, store.open(t))
					tc.play(w)
					want := "o\n"
					for line := range strings.Lines(strings.TrimSpace(tc.want)) {
						want += strings.TrimSpace(line) + "\n"
					}
					if got := w.departures(); got != want {
						t.Errorf("got\n%s\nwant\n%s", got, want)
					}
				})
			}
		})
	}
}

// Without the policy nothing is written, and a log whose key is taken stops no job.
func TestDepartureLogOff(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 4)
	w.offers("a", 3)
	w.runNext()
	if n := w.rdb.Exists(t.Context(), w.q.LogKey()).Val(); n != 0 {
		t.Error("there is a log although it is off")
	}
	w.setDownstream(DownstreamPolicy{DepartureLog: 1})
	w.must(w.rdb.Del(t.Context(), w.q.LogKey()).Err())
	w.must(w.rdb.Set(t.Context(), w.q.LogKey(), "taken", 0).Err())
	w.runNext()
	w.must(w.rdb.HSet(t.Context(), w.q.DownstreamKey(), "log", "1e99").Err())
	w.runNext()
}

// The log is read in pages, keeps about as much as it may, and passes over what no script of ours
// wrote.
func TestDepartureLogIsCapped(t *testing.T) {
	testenv.Long(t, "fills a departure log")
	t.Parallel()
	rdb := redistest.Open(t)
	w := logged(t, rdb)
	w.setDownstream(DownstreamPolicy{DepartureLog: 1500})
	w.set("a", Policy{Rate: rate(1_000_000, time.Second), Depth: 1_000_000, MaxInFlight: 1_000_000})
	w.pool("p", 1_000_000)
	const jobs = 2500
	offerN(w, jobs)
	var last *queue.Grant
	for _, k := range tickets(w, jobs) {
		last, _ = w.enter(k.(queue.Ticket), "p")
	}
	for _, e := range []string{"", "g a", "g a x 1 0 0 0/1 - 0 0", "f {a} x 1 done 0 0", "z", "f a x one done 0 0"} {
		w.must(rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: w.q.LogKey(), Values: []string{"e", e}}).Err())
	}
	w.must(rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: w.q.LogKey(), Values: []string{"other", "x"}}).Err())
	n, noise := 0, 0
	var newest LogEntry
	w.must(w.admin.DepartureLog(t.Context(), 0, func(e LogEntry) error {
		n++
		if e.Kind == LogNoise {
			noise++
		} else {
			newest = e
		}
		return nil
	}))
	if n < 1500 || n > 2000 || noise != 7 || newest.ID != last.ID {
		t.Errorf("%d entries, %d of them noise, the last is of %s; want about 1500, 7, %s", n, noise, newest.ID, last.ID)
	}
	stop := errors.New("enough")
	if err := w.admin.DepartureLog(t.Context(), 0, func(LogEntry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v, want the error of the caller", err)
	}
	w.q.Clock = nil
	real := &Admin{queue.Open(rdb, w.q.Downstream)}
	n = 0
	w.must(real.DepartureLog(t.Context(), time.Hour, func(LogEntry) error { n++; return nil }))
	if n < 1500 {
		t.Errorf("%d entries of the last hour, want all", n)
	}
}
