package sim_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
	"github.com/jobshaper/jobshaper/internal/sim"
)

func play(seed uint64) sim.Findings {
	return sim.Run(model.New(0, model.DownstreamPolicy{}), sim.Draw(seed))
}

// TestModel plays scenarios on the model.
func TestModel(t *testing.T) {
	from, n := time.Now(), uint64(0)
	var all sim.Findings
	for until := from.Add(5 * time.Second); time.Now().Before(until); n++ {
		f := play(n)
		for _, line := range f.Broken {
			t.Errorf("seed %d: %s", n, line)
		}
		if t.Failed() {
			break
		}
		all.Starts, all.Missed, all.Restarts, all.Days = all.Starts+f.Starts, all.Missed+f.Missed, all.Restarts+f.Restarts, all.Days+f.Days
	}
	t.Logf("%d scenarios: %d starts, %d missed slots, %d restarts in %.0f days, %v", n, all.Starts, all.Missed, all.Restarts, all.Days, time.Since(from))
}

// The same seed plays the same.
func TestSameSeed(t *testing.T) {
	for seed := range uint64(6) {
		if a, b := play(seed), play(seed); !reflect.DeepEqual(a, b) {
			t.Errorf("seed %d: %+v, and then %+v", seed, a, b)
		}
	}
}
