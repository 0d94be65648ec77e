package shaper

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// on returns a world on a server's own clock, and with the server's real identity.
func on(t testing.TB, rdb redis.UniversalClient) *world {
	w := newWorld(t, rdb)
	w.q.Clock = nil
	w.client.q, w.admin.q, w.gate = w.q, w.q, queue.NewGate(w.q)
	return w
}

// next starts the next job, in real time.
func (w *world) next() *queue.Grant {
	w.t.Helper()
	for end := time.Now().Add(testenv.Patience); time.Now().Before(end); {
		w.pool("p", 9)
		tickets, _, _ := w.release(1)
		for _, k := range tickets {
			if g, _ := w.enter(k, "p"); g != nil {
				return g
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.t.Fatalf("nothing started within %v", testenv.Patience)
	return nil
}

// A Redis that comes back without the last grant must not grant the same slot twice: after a
// restart a tenant first waits one interval, even if its very first grant was lost, and so does the
// downstream.
func TestRestartThatLostTheLastGrant(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(w *world)
	}{
		{"tenant", func(w *world) { w.set("a", Policy{Rate: rate(1, time.Second)}) }},
		{"downstream", func(w *world) {
			w.set("a", Policy{Rate: rate(1000, time.Second)})
			w.setDownstream(DownstreamPolicy{Rate: rate(1, time.Second)})
		}},
	} {
		for _, grants := range []int{0, 1} { // before the copy is taken
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t, redistest.AOF(), redistest.Acknowledged())
				w := on(t, server.Client())
				tc.set(w)
				w.offers("a", 3)
				for range grants {
					w.finish(w.next(), queue.Finish{Ending: queue.EndOK})
				}
				stale := copyAOF(t, server, w)
				lost := w.next()
				server.Kill()
				put := filepath.Join(server.Dir(), "appendonlydir")
				w.must(os.RemoveAll(put))
				w.must(os.CopyFS(put, os.DirFS(stale)))
				server.Restart()
				back, err := w.rdb.Time(t.Context()).Result()
				w.must(err)
				g := w.next()
				if early := g.Slot.Sub(back); early < time.Second { // however long it was away
					t.Errorf("a slot %v after Redis came back, want at least the interval, 1s", early)
				}
				if g.Slot.Sub(lost.Slot) < time.Second {
					t.Errorf("a slot %v after one that was lost with a restart, want at least the interval, 1s", g.Slot.Sub(lost.Slot))
				} else if late := g.Slot.Sub(back); late > 9*time.Second {
					t.Errorf("a slot %v after Redis came back: held for longer than an interval", late)
				}
			})
		}
	}
}

// A Redis that ends in order forgets nothing, so nobody waits after its restart. One that goes on after all, and is killed then,
// may have forgotten what it granted since.
func TestRestartInOrder(t *testing.T) {
	for _, goesOn := range []bool{false, true} {
		t.Run(fmt.Sprint("goes on ", goesOn), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.AOF(), redistest.Acknowledged())
			w := on(t, server.Client())
			w.set("a", Policy{Rate: rate(1, time.Hour)})
			w.setDownstream(DownstreamPolicy{Rate: rate(1, time.Hour)})
			w.offers("a", 1)
			w.must(queue.EndInOrder(t.Context(), w.rdb))
			if goesOn {
				w.must(w.rdb.Do(t.Context(), "client", "unpause").Err())
				w.release(0)
				server.Kill()
			} else {
				server.Stop()
			}
			server.Restart()
			if !goesOn {
				w.next()
				return
			}
			w.pool("p", 9)
			if tickets, wait, _ := w.release(1); len(tickets) > 0 || wait < 59*time.Minute {
				t.Errorf("%d tickets, the next in %v; a grant may be forgotten, want an interval, 1h", len(tickets), wait)
			}
		})
	}
}

// A Redis that crashed may have forgotten a grant, and that stays so if the next one ends in order before anybody looked at the
// downstream: it says nothing about the one before.
func TestRestartInOrderAfterACrashThatNobodySaw(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.AOF(), redistest.Acknowledged())
	w := on(t, server.Client())
	w.set("a", Policy{Rate: rate(1, time.Hour)})
	w.offers("a", 1)
	server.Kill()
	server.Restart()
	w.must(queue.EndInOrder(t.Context(), w.rdb))
	server.Stop()
	server.Restart()
	w.pool("p", 9)
	if tickets, wait, _ := w.release(1); len(tickets) > 0 || wait < 59*time.Minute {
		t.Errorf("%d tickets, the next in %v; a grant may be forgotten, want an interval, 1h", len(tickets), wait)
	}
}

// becomesAnother makes the Redis look like another one that holds the same.
func (w *world) becomesAnother() {
	w.t.Helper()
	w.must(w.rdb.HSet(w.t.Context(), w.q.DownstreamKey(), "rid", "another").Err())
	w.release(0) // as each scheduler does once a second
}

// However often Redis restarts, a tenant with a backlog starts a job within two intervals plus the
// time that a worker may hold a slot, and no two of its starts are closer than one interval.
func TestStartsGoOnHoweverOftenRedisRestarts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Open(t)
	const day = 24 * hour
	every := func(us int64) func(*rand.Rand) int64 { return func(*rand.Rand) int64 { return us } }
	for _, tc := range []struct {
		name     string
		interval int64
		restart  func(draw *rand.Rand) int64 // µs until the next one
	}{
		{"1/10s, every 8s", 10 * second, every(8 * second)},
		{"1/10s, every 300ms", 10 * second, every(300 * milli)},
		{"1/10s, as often as it may start", 10 * second, every(10 * second)},
		{"1/d, every 23h", day, every(23 * hour)},
		{"1/d, every day", day, every(day)},
		{"1/30d, every day", 30 * day, every(day)},
		{"1/m, at random", 60 * second, func(draw *rand.Rand) int64 { return 1 + draw.Int64N(40*second) }},
		{"10/s, at random", 100 * milli, func(draw *rand.Rand) int64 { return 1 + draw.Int64N(second) }},
	} {
		for _, common := range []bool{false, true} { // whether the downstream has the rate too
			t.Run(fmt.Sprint(tc.name, ", common ", common), func(t *testing.T) {
				t.Parallel()
				w, draw := newWorld(t, rdb), rand.New(rand.NewPCG(1, 2))
				r := rate(1, time.Duration(tc.interval)*time.Microsecond)
				w.set("a", Policy{Rate: r})
				if common {
					w.setDownstream(DownstreamPolicy{Rate: r})
				}
				w.offers("a", 8)
				last, restart := w.now, w.now+tc.restart(draw)
				for starts := 0; starts < 8; {
					w.pool("p", 4)
					tickets, wait, more := w.release(1)
					for _, k := range tickets {
						g, _ := w.enter(k, "p")
						if g == nil {
							continue
						}
						slot := g.Slot.UnixMicro()
						if gap := slot - last; starts > 0 && gap < tc.interval {
							t.Fatalf("start %d is %d µs after the one before", starts+1, gap)
						}
						starts, last = starts+1, slot
						w.now = max(w.now, slot)
						w.finish(g, queue.Finish{Ending: queue.EndOK})
					}
					if late := w.now - last; late > 2*tc.interval+2*hold {
						t.Fatalf("%d starts, and none for %d µs", starts, late)
					}
					if !more {
						w.pass(min(max(int64(wait/time.Microsecond), milli), max(0, restart-w.now)))
					}
					if w.now >= restart {
						w.becomesAnother()
						restart = w.now + tc.restart(draw)
					}
				}
			})
		}
	}
}

// A tenant that Redis knows nothing of need not wait as if it had been forgotten: that would be a
// whole interval, perhaps a month.
func TestNewTenantOfARestartedRedis(t *testing.T) {
	const day = 24 * hour
	month := Policy{Rate: rate(1, 30*24*time.Hour)}
	rdb := redistest.Open(t)
	for _, tc := range []struct {
		name   string
		before func(w *world)
		most   int64
	}{
		{"a downstream that was never used", func(w *world) {
			w.must(w.rdb.HDel(w.t.Context(), w.q.DownstreamKey(), "rid", "epoch").Err())
			w.setDownstream(DownstreamPolicy{Rate: rate(1, 30*24*time.Hour)})
			w.set("a", month)
		}, 10*second + ahead},
		{"a tenant set right after a restart", func(w *world) {
			w.becomesAnother()
			w.set("a", month)
		}, 10*second + hold},
		{"by the downstream's default", func(w *world) {
			w.becomesAnother()
			w.setDownstream(DownstreamPolicy{Defaults: month})
		}, 10*second + hold},
		{"a day after a restart", func(w *world) {
			w.becomesAnother()
			w.pass(day)
			w.set("a", month)
		}, 0},
		{"at another rate first", func(w *world) {
			w.becomesAnother()
			w.pass(second)
			w.set("a", Policy{Rate: rate(10, time.Second)})
			w.set("a", Policy{Weight: 2})
			w.pass(20 * second)
			w.set("a", month)
		}, 0},
		{"a downstream whose rate is set after a restart", func(w *world) {
			w.becomesAnother()
			w.pass(20 * second)
			w.setDownstream(DownstreamPolicy{Rate: rate(1, 30*24*time.Hour)})
		}, 0},
		{"a downstream whose rate is set at once after a restart", func(w *world) {
			w.becomesAnother()
			w.offers("b", 1)
			w.setDownstream(DownstreamPolicy{Rate: rate(1, 30*24*time.Hour)})
		}, 10*second + hold},
		{"a tenant that was known", func(w *world) { // its first grant may have been forgotten
			w.set("a", month)
			w.pass(second)
			w.becomesAnother()
		}, 30*day + hold},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, rdb)
			w.pool("p", 4)
			w.release(0)
			tc.before(w)
			from := w.now
			w.offers("a", 1)
			g := w.startWithin(31 * day)
			if took := g.Slot.UnixMicro() - from; took > tc.most+milli {
				t.Errorf("the first start after %v, want at most %v", time.Duration(took)*time.Microsecond, time.Duration(tc.most)*time.Microsecond)
			} else if tc.most == 30*day+hold && took < 30*day {
				t.Errorf("the first start after %v, want an interval", time.Duration(took)*time.Microsecond)
			}
		})
	}
}

// A rate of the downstream that was set just before a crash may be forgotten, and with it the
// grants that it was for. Whoever sets it again, as daemons do, gets no start nearer to those than
// an interval, whatever was called first.
func TestRateThatWasForgottenWithItsGrants(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 4)
	w.release(0)
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.offers("a", 1)
	w.becomesAnother()
	epoch := w.now
	w.offers("b", 1) // notices the restart
	w.pass(second)
	w.setDownstream(DownstreamPolicy{Rate: rate(1, 5*time.Second)})
	want := epoch + hold + 5*second
	if at := w.startWithin(60 * second).Slot.UnixMicro(); at < want || at > want+milli {
		t.Errorf("the first start %d µs after the restart, want %d", at-epoch, want-epoch)
	}
}

// copyAOF copies what the server would find if it crashed now.
func copyAOF(t *testing.T, server *redistest.Server, w *world) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "stale")
	w.must(os.CopyFS(dir, os.DirFS(filepath.Join(server.Dir(), "appendonlydir"))))
	return dir
}

// While Redis was away nobody could extend a lease, so those that ended meanwhile are not over
// until live workers had time to beat; a worker that is gone is noticed all the same, by default
// within 20 s of its last beat.
func TestLeasesThatEndedInAnOutage(t *testing.T) {
	rdb := redistest.Open(t)
	begin := func(t *testing.T) (*world, *queue.Grant) {
		w := newWorld(t, rdb)
		w.pool("p", 9)
		w.offers("a", 1)
		return w, w.start()
	}
	beat := func(w *world, g *queue.Grant) queue.Standing {
		s, err := w.gate.Beat(t.Context(), "p", 9, time.Hour, []queue.Held{{Grant: g}})
		w.must(err)
		return s[0]
	}
	poll := func(w *world, us int64) { // a scheduler that looks once a second
		for end := w.now + us; w.now < end; w.pass(second) {
			w.release(0)
		}
	}
	running := func(w *world) bool { return w.job("a", "a1").State == StateRunning }

	t.Run("a live worker keeps its job", func(t *testing.T) {
		w, g := begin(t)
		w.pass(600 * second) // nobody could reach Redis
		w.release(0)
		poll(w, 3*second)
		if s := beat(w, g); s != queue.Owned {
			t.Fatalf("standing %d three seconds after Redis was back, want owned", s)
		}
		poll(w, 10*second)
		if !running(w) {
			t.Error("the job was taken from a worker that beat")
		}
	})
	t.Run("the same after a short outage, by the run id", func(t *testing.T) {
		w, g := begin(t)
		poll(w, 14*second)
		w.must(rdb.HSet(t.Context(), w.q.DownstreamKey(), "rid", "another").Err())
		w.pass(3 * second)
		w.release(0)
		poll(w, 2*second)
		if s := beat(w, g); s != queue.Owned {
			t.Errorf("standing %d, want owned", s)
		}
	})
	t.Run("the same if Redis restarts again before the worker could beat", func(t *testing.T) {
		w, g := begin(t)
		w.pass(600 * second)
		w.release(0)
		w.pass(30 * second) // in which nobody could reach Redis
		w.becomesAnother()
		poll(w, 3*second)
		if s := beat(w, g); s != queue.Owned {
			t.Errorf("standing %d three seconds after Redis was back for the second time, want owned", s)
		}
	})
	t.Run("a dead worker is found out", func(t *testing.T) {
		w, _ := begin(t)
		w.pass(600 * second)
		w.release(0)
		if poll(w, 5*second); running(w) {
			t.Error("the worker has had five seconds to beat, and its job is still running")
		}
	})
	t.Run("a crash without an outage", func(t *testing.T) {
		w, g := begin(t)
		for end := g.Slot.UnixMicro() + 20*second; w.now < end && running(w); w.pass(second) {
			w.release(0)
		}
		if running(w) {
			t.Error("the worker fell silent 20 s ago, and its job is still running")
		}
	})
	t.Run("its only daemon was killed and came back at the worst time", func(t *testing.T) {
		w, g := begin(t)
		w.now = g.Slot.UnixMicro() + 15*second - 1
		w.release(0)
		if poll(w, 5*second); running(w) {
			t.Error("the worker fell silent 20 s ago, and its job is still running")
		}
	})
	t.Run("schedulers that look once in ten seconds", func(t *testing.T) {
		w, _ := begin(t)
		for range 4 {
			w.pass(10 * second)
			w.release(0)
		}
		if running(w) {
			t.Error("the lease ended 25 s ago; whoever looks seldom must not put it off for ever")
		}
	})
	t.Run("the clock steps ahead", func(t *testing.T) {
		w, g := begin(t)
		poll(w, 2*second)
		w.pass(hour)
		w.release(0)
		if s := beat(w, g); s != queue.Owned {
			t.Errorf("standing %d, want owned", s)
		}
	})
}
