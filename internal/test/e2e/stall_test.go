package e2e

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// stalls are the times, since watch was called, in which this machine kept a process from running
// that wanted to. Some promises are exact only if workers come to their slots in time: a slot that
// was missed is gone, by design.
type stalls struct {
	begun int64 // by the history's clock
	clock *stallClock
}

// stall is a time in which the machine kept us waiting.
type stall struct {
	until int64 // by the history's clock
	d     time.Duration
}

// stallClock measures stalls. All tests of this process share one, since it wakes a thousand times
// a second.
type stallClock struct {
	mu    sync.Mutex // guards what follows
	list  []stall    // those that matter, in order
	users int
	quit  chan struct{}
	done  chan struct{}
}

var machine stallClock

// shortStall is the shortest that matters.
const shortStall = 2 * time.Millisecond

// watch measures until the test ends.
func watch(t *testing.T) *stalls {
	machine.start()
	t.Cleanup(machine.stop)
	return &stalls{begun: history.Now(), clock: &machine}
}

func (c *stallClock) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users++; c.users == 1 {
		c.quit, c.done = make(chan struct{}), make(chan struct{})
		go c.run(c.quit, c.done)
	}
}

// stop ends one start, and the measuring with the last of them.
func (c *stallClock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users == 0 {
		close(c.quit)
		c.mu.Unlock()
		<-c.done
		c.mu.Lock()
	}
}

func (c *stallClock) run(quit, done chan struct{}) {
	defer close(done)
	const tick = time.Millisecond
	for {
		begun := time.Now()
		select {
		case <-quit:
			return
		case <-time.After(tick):
		}
		if d := time.Since(begun) - tick; d > shortStall {
			c.mu.Lock()
			c.list = append(c.list, stall{history.Now(), d})
			c.mu.Unlock()
		}
	}
}

// all returns the stalls so far.
func (s *stalls) all() []stall {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.clock.list, s.begun, func(e stall, at int64) int { return cmp.Compare(e.until, at) })
	return s.clock.list[i:len(s.clock.list):len(s.clock.list)]
}

// longest is the longest stall, and at least shortStall, since shorter ones are not told apart.
func (s *stalls) longest() time.Duration {
	most := shortStall
	for _, e := range s.all() {
		most = max(most, e.d)
	}
	return most
}

// calm reports whether the machine let everybody run within half the time that the tests' tolerance
// and lead leave.
func (s *stalls) calm() bool { return s.longest() < 8*time.Millisecond }

// cost is how many slots of a tenant with that interval the stalls may have cost: each makes
// workers miss the slots that fall into it, and one more on each side. Other processes had stalls
// of their own, so it counts three times. It is zero on a calm machine, and beyond all bounds on a
// hopeless one.
func (s *stalls) cost(interval time.Duration) (slots float64) {
	for _, e := range s.all() {
		if e.d >= 8*time.Millisecond {
			slots += 3 * (2 + float64(e.d)/float64(interval))
		}
	}
	return slots
}

// excusable are the checks that are about the moment of a start. "missed slot" is that of missed.
var excusable = []string{"spacing", "windows", "on time", "missed slot"}

// excuse takes out those violations that are about the moment of a start and have a stall within a
// second of them: between a worker's last look at the clock and the handler's first instruction the
// machine may keep it waiting, and nobody promises anything about that. Slots are exact, whatever
// the machine does, and no stall makes a start early.
//
// A long stall also excuses that a job starts again although it was done: its process was killed
// before it could say so, later than history.ReportWithin allows. That is found out when the lease
// is over.
func (s *stalls) excuse(l []history.Violation) (rest []history.Violation) {
	const around = time.Second
	for _, v := range l {
		timing := slices.Contains(excusable, v.Check) && !strings.HasSuffix(v.What, "before its slot")
		unsaid := v.Check == "duplicated" && strings.HasSuffix(v.What, "was done")
		if !(timing && s.between(v.At-int64(around), v.At+int64(around), shortStall) ||
			unsaid && s.between(v.At-2*int64(shaper.DefaultLease), v.At, history.ReportWithin/4)) {
			rest = append(rest, v)
		}
	}
	return rest
}

// between reports whether there was a stall of at least d in a time.
func (s *stalls) between(from, until int64, d time.Duration) bool {
	list := s.all()
	i, _ := slices.BinarySearchFunc(list, from, func(e stall, at int64) int { return cmp.Compare(e.until, at) })
	for ; i < len(list) && list[i].until-int64(list[i].d) <= until; i++ {
		if list[i].d >= d {
			return true
		}
	}
	return false
}

// share is the part of the time in which this machine kept us waiting.
func (s *stalls) share() float64 {
	var sum time.Duration
	for _, e := range s.all() {
		sum += e.d
	}
	return float64(sum) / float64(max(history.Now()-s.begun, 1))
}

// refuse fails the test for violations that the machine does not explain. It lets a hundredth of
// the starts be late, plus the share of them that the stalls had of the time, and the start after
// each be too close, and two more.
func (s *stalls) refuse(t *testing.T, starts int, lists ...[]history.Violation) {
	t.Helper()
	all := slices.Concat(lists...)
	rest := s.excuse(all)
	refuse(t, rest)
	late := map[int64]bool{} // at these times; the start after a late one is too close, and is found as well
	for _, v := range all {
		late[v.At] = true
	}
	if n := len(all) - len(rest); n > 0 && len(late) > 2+int(2*float64(starts)*(0.01+s.share())) {
		t.Errorf("%d of %d starts are late or too close: too many for stalls of up to %v, %.1f %% of the time", len(late), starts, s.longest(), 100*s.share())
		refuse(t, all)
	} else if n > 0 {
		t.Logf("the machine stalled for up to %v, and made %d starts late or too close: %v …", s.longest(), len(late), all[0])
	}
}

func TestStallsExcuseLateStartsOnly(t *testing.T) {
	second := int64(time.Second)
	s := &stalls{clock: &stallClock{list: []stall{{10 * second, 20 * time.Millisecond}, {100 * second, 3 * time.Second}}}}
	for _, tc := range []struct {
		check   string
		at      int64
		excused bool
		what    string
	}{
		{"on time", 10 * second, true, ""},
		{"spacing", 10*second + second/2, true, ""},
		{"windows", 9*second + second/10, true, ""},
		{"on time", 98 * second, true, ""}, // amid the long one
		{"on time", 8 * second, false, ""},
		{"on time", 12 * second, false, ""},
		{"on time", 102 * second, false, ""},
		{"slots", 10 * second, false, ""},
		{"lost", 10 * second, false, ""},
		{"attempts", 10 * second, false, ""},
		{"on time", 10 * second, true, "30ms after its slot, want at most 21ms"},
		{"on time", 10 * second, false, "3ms before its slot"},
		{"duplicated", 105 * second, true, "attempt 2, and attempt 1 was done"},
		{"duplicated", 105 * second, false, "attempt 2, and attempt 1 still ran"},
		{"duplicated", 15 * second, false, "attempt 2, and attempt 1 was done"}, // that stall was short
		{"duplicated", 135 * second, false, "attempt 2, and attempt 1 was done"},
	} {
		rest := s.excuse([]history.Violation{{Check: tc.check, At: tc.at, What: tc.what}})
		if (len(rest) == 0) != tc.excused {
			t.Errorf("%s at %v: excused %v, want %v", tc.check, time.Duration(tc.at), len(rest) == 0, tc.excused)
		}
	}
}
