package shaper

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// farm is a world of worker processes that die: with them dies whatever they run, and others take
// their place.
type farm struct {
	*world
	places, born int
	processes    []*process
	takes        int64 // that an innocent handler takes
	deaths       int
}

type process struct {
	pool string
	runs map[string]*queue.Grant
}

func newFarm(t *testing.T, processes, places int, takes int64) *farm {
	f := &farm{world: newWorld(t, redistest.Open(t)), places: places, takes: takes}
	for range processes {
		f.processes = append(f.processes, f.process())
	}
	return f
}

func (f *farm) process() *process {
	f.born++
	return &process{fmt.Sprint("p", f.born), map[string]*queue.Grant{}}
}

// step lets a process beat, end what is done, and die if one of its jobs is a poison that has run
// for a while; then a process takes what tickets there are.
func (f *farm) step(us int64) {
	f.t.Helper()
	f.pass(us)
	for i, p := range f.processes {
		if slices.ContainsFunc(slices.Collect(maps.Values(p.runs)), func(g *queue.Grant) bool {
			return strings.HasPrefix(g.ID, "poison") && f.now-g.Slot.UnixMicro() > second/2
		}) {
			f.deaths++
			f.processes[i] = f.process() // nobody reports anything of the old one
			p = f.processes[i]
		}
		held := make([]queue.Held, 0, len(p.runs))
		for _, id := range slices.Sorted(maps.Keys(p.runs)) {
			g := p.runs[id]
			if f.now-g.Slot.UnixMicro() > f.takes && !strings.HasPrefix(id, "poison") {
				delete(p.runs, id)
				f.finish(g, queue.Finish{Ending: queue.EndOK, Began: queue.BeganAfter(0)})
				continue
			}
			held = append(held, queue.Held{Grant: g, Begun: true})
		}
		_, err := f.gate.Beat(f.t.Context(), p.pool, f.places, 5*time.Second, held)
		f.must(err)
	}
	for {
		tickets, _, _ := f.release(50)
		if len(tickets) == 0 {
			return
		}
		for _, k := range tickets {
			p := slices.MinFunc(f.processes, func(a, b *process) int { return len(a.runs) - len(b.runs) })
			if g, _ := f.enter(k, p.pool); g != nil {
				p.runs[g.ID] = g
			}
		}
	}
}

// ended lets the farm work until all jobs have ended, each within that time.
func (f *farm) ended(within int64, jobs map[string]string) {
	f.t.Helper()
	for begun := f.now; ; {
		left := slices.DeleteFunc(slices.Sorted(maps.Keys(jobs)), func(id string) bool { return f.job(jobs[id], id).State.Ended() })
		if len(left) == 0 {
			return
		}
		if f.now-begun > within {
			f.t.Fatalf("after %v and %d deaths these have not ended: %v", time.Duration(f.now-begun)*time.Microsecond, f.deaths, left)
		}
		f.step(second / 4)
	}
}

// A job that takes its process down is dead after it did so alone; the jobs that ran beside it are
// done.
func TestOnlyThePoisonDies(t *testing.T) {
	for _, tc := range []struct {
		name                         string
		processes, places            int
		innocents, poisons, patience int
		takes                        int64
		maxCrashes                   int
	}{
		{"one process", 1, 16, 8, 1, 5, 3 * second, 3},
		{"long jobs", 1, 16, 8, 1, 20, 60 * second, 3},
		{"several processes", 3, 4, 8, 1, 5, 3 * second, 3},
		{"two poisons", 1, 16, 8, 2, 6, 3 * second, 3},
		{"one place", 1, 1, 3, 1, 4, 3 * second, 3},
		{"many poisons", 2, 8, 8, 6, 15, 3 * second, 3},
		{"dead at the first crash of its own", 1, 16, 8, 1, 5, 3 * second, 1},
		{"many", 1, 64, 60, 1, 8, 3 * second, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFarm(t, tc.processes, tc.places, tc.takes)
			f.setDownstream(DownstreamPolicy{MaxCrashes: tc.maxCrashes, Defaults: Policy{Rate: rate(100, time.Second)}})
			f.step(0)
			jobs := map[string]string{}
			for i := range tc.poisons {
				jobs[fmt.Sprint("poison", i)] = "poisoner"
			}
			for i := range tc.innocents {
				jobs[fmt.Sprint("job", i)] = fmt.Sprint("tenant", i%4)
			}
			for id, tenant := range jobs {
				f.offer(Spec{Tenant: tenant, ID: id})
			}
			f.ended(int64(tc.patience*60)*second, jobs)
			for id, tenant := range jobs {
				j := f.job(tenant, id)
				if poison := strings.HasPrefix(id, "poison"); poison && (j.State != StateDead || j.Reason != ReasonCrashed || j.Blamed != tc.maxCrashes) {
					t.Errorf("%s is %s (%s) after %d crashes, %d of them its own; want dead", id, j.State, j.Reason, j.Crashes, j.Blamed)
				} else if !poison && j.State != StateDone {
					t.Errorf("%s is %s (%s) after %d crashes; want done", id, j.State, j.Reason, j.Crashes)
				}
			}
			if most := (2 + tc.maxCrashes) * tc.poisons; f.deaths > most {
				t.Errorf("%d processes died, want at most %d", f.deaths, most)
			}
		})
	}
}

// Suspects that were lost with others twice start one after another, and those that wait longest
// first. Other jobs do not wait for them.
func TestSuspectsTakeTurns(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 16) // of which four are for suspects
	w.set("fresh", Policy{Rate: rate(100, time.Second)})
	suspects := []string{"a", "b", "c", "d"}
	for _, tenant := range suspects {
		w.set(tenant, Policy{Rate: rate(100, time.Second)})
		w.offers(tenant, 1)
	}
	slots := map[string]time.Time{} // of the last start of each
	for range 2 {
		for range suspects {
			g := w.start()
			slots[g.Tenant] = g.Slot
			w.pass(10 * milli)
		}
		for range 5 {
			w.pass(4 * second)
			w.release(0)
		}
	}
	w.must(w.admin.Pause(t.Context(), "a", -1)) // so it is not the first, and asks at other instants than the rest
	for n := range suspects {
		g := w.start()
		if j := w.job(g.Tenant, g.ID); !j.Suspect || j.Crashes != 2 || j.Blamed != 0 {
			t.Errorf("%+v, want a suspect that was lost twice, and not blamed", j)
		}
		for tenant, slot := range slots {
			if n > 0 && slot.Before(slots[g.Tenant]) { // the first took what was free
				t.Errorf("%s has its turn before %s, which waits longer", g.Tenant, tenant)
			}
		}
		delete(slots, g.Tenant)
		for i := range 30 {
			w.offer(Spec{Tenant: "fresh", ID: fmt.Sprint("fresh", n, ".", i)})
			if other := w.runNext(); other.Tenant != "fresh" {
				t.Fatalf("%s starts beside the suspect %s", other.ID, g.ID)
			}
			w.pass(300 * milli)
			if n == 0 && i == 10 {
				w.must(w.admin.Resume(t.Context(), "a"))
			}
		}
		for n == 0 && !w.job("a", "a1").Due.After(w.job("c", "c1").Due) { // when there is room, c asks first
			w.pass(20 * milli)
			w.release(1)
		}
		w.finish(g, queue.Finish{Ending: queue.EndOK})
	}
}

// A suspect that left the flight without a trace, by a lost write, keeps no other from its turn.
func TestSuspectThatIsNotThere(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 9)
	w.offers("a", 1)
	w.start()
	w.must(w.rdb.ZAdd(t.Context(), w.q.ApartKey(), redis.Z{Score: 2, Member: "b ghost"}).Err())
	for range 5 {
		w.pass(4 * second)
		w.release(0)
	}
	if g := w.runNext(); g.Attempt != 2 {
		t.Errorf("attempt %d, want the second", g.Attempt)
	}
	if n := w.rdb.Exists(t.Context(), w.q.ApartKey()).Val(); n > 0 {
		t.Error("there are suspects in flight after all have ended")
	}
}

// The log says that a worker fell silent, and what became of the jobs that it ran.
func TestSilentWorkersAreLogged(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	var log strings.Builder
	s, err := NewScheduler(w.rdb, w.q.Downstream, newCarrier(0), SchedulerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w.must(err)
	s.q = w.q
	w.setDownstream(DownstreamPolicy{MaxCrashes: 1, Defaults: Policy{Rate: rate(100, time.Second)}})
	w.pool("p", 3)
	w.offers("a", 2)
	w.start()
	w.start()
	silent := func(want string) {
		t.Helper()
		log.Reset()
		w.pass(second / 2)
		for range 20 {
			w.pass(second)
			_, _, _, err := s.runOnce(t.Context(), false)
			w.must(err)
		}
		if got := log.String(); strings.Count(got, "fell silent") != 1 || !strings.Contains(got, want) {
			t.Errorf("the log says %q, want %s", got, want)
		}
	}
	silent("suspects=2 blamed=0 dead=0")
	w.pool("q", 1)
	w.start()
	silent("suspects=0 blamed=0 dead=1")
}
