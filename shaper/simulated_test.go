package shaper

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/sim"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

var (
	simFor  = flag.Duration("sim.for", 30*time.Second, "how long TestSimulatedScripts plays")
	simSeed = flag.Uint64("sim.seed", 0, "the first seed that it plays; 0 = at random")
)

// simulated is the queue of a simulation: the scripts, on a Redis that can restart and forget.
type simulated struct {
	scripted
	saved map[string]kept
}

// kept is what DUMP says of a key.
type kept struct {
	value string
	ttl   time.Duration
}

func (s *simulated) Restart() { s.becomesAnother() }

func (s *simulated) keys() []string {
	keys, err := s.rdb.Keys(s.t.Context(), s.q.Prefix+"*").Result()
	s.must(err)
	return keys
}

func (s *simulated) Save() {
	s.saved = map[string]kept{}
	for _, key := range s.keys() {
		value, err := s.rdb.Dump(s.t.Context(), key).Result()
		s.must(err)
		ttl, err := s.rdb.PTTL(s.t.Context(), key).Result()
		s.must(err)
		s.saved[key] = kept{value, max(0, ttl)}
	}
}

func (s *simulated) Forget() {
	s.must(s.rdb.Unlink(s.t.Context(), s.keys()...).Err())
	for key, k := range s.saved {
		s.must(s.rdb.Restore(s.t.Context(), key, k.ttl, k.value).Err())
	}
	s.Restart()
}

// TestSimulatedScripts plays scenarios on the scripts: see package sim, which says what is judged.
func TestSimulatedScripts(t *testing.T) {
	testenv.Long(t, "plays scenarios for as long as -sim.for says")
	t.Parallel()
	seed := *simSeed
	if seed == 0 {
		seed = rand.Uint64() >> 16
	}
	rdb := redistest.Start(t).Client()
	var all sim.Findings
	n := 0
	for until := time.Now().Add(*simFor); n < 3 || time.Now().Before(until); n++ {
		w := newWorld(t, rdb)
		f := sim.Run(&simulated{scripted: scripted{w}}, sim.Draw(seed))
		for _, line := range f.Broken {
			t.Errorf("%s", line)
		}
		if t.Failed() {
			t.Fatalf("-sim.seed %d -sim.for 1ns plays it again", seed)
		}
		all.Starts, all.Restarts, all.Forgot, all.Days = all.Starts+f.Starts, all.Restarts+f.Restarts, all.Forgot+f.Forgot, all.Days+f.Days
		w.must(rdb.Unlink(t.Context(), (&simulated{scripted: scripted{w}}).keys()...).Err())
		seed++
	}
	t.Logf("%d scenarios: %d starts in %.0f days, %d restarts, %d of which forgot something", n, all.Starts, all.Days, all.Restarts, all.Forgot)
}

var _ sim.Forgetful = (*simulated)(nil)
