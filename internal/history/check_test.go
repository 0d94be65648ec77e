package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// script reads a history as tests write it, one event per line:
//
//	100 start a/j1 attempt=2 slot=90 pid=7
//
// The time, the slot and wall=, all in ms, count from the same instant; the wall clock shows the
// event's time unless wall= says otherwise.
func script(t *testing.T, text string) History {
	t.Helper()
	var h History
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		ms := func(s string) int64 {
			d, err := time.ParseDuration(s + "ms")
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return d.Nanoseconds()
		}
		e := Event{At: ms(f[0]), Kind: Kind(f[1]), PID: 1}
		e.Wall = e.At / 1000
		for _, w := range f[2:] {
			key, value, ok := strings.Cut(w, "=")
			switch {
			case !ok:
				e.Tenant, e.ID, _ = strings.Cut(w, "/")
			case key == "attempt":
				fmt.Sscan(value, &e.Attempt)
			case key == "pid":
				fmt.Sscan(value, &e.PID)
			case key == "slot":
				e.Slot = ms(value) / 1000
			case key == "wall":
				e.Wall = ms(value) / 1000
			case key == "outcome":
				e.Outcome = value
			default:
				t.Fatalf("%q: unknown word %q", line, w)
			}
		}
		if e.Attempt == 0 && (e.Kind == Start || e.Kind == End) {
			e.Attempt = 1
		}
		h = append(h, e)
	}
	h.sort()
	return h
}

var tenPerSecond = Rule{Rate: buckets.PerSecond(10), Tolerance: 20 * time.Millisecond}

// TestChecks shows each check a history that it must accept, and broken ones that it must reject.
func TestChecks(t *testing.T) {
	ruled := func(check func(History, Rule) []Violation) func(History) []Violation {
		return func(h History) []Violation { return check(h, tenPerSecond) }
	}
	slack := tenPerSecond
	slack.Slack = 5 * time.Millisecond
	for _, tc := range []struct {
		name  string
		check func(History) []Violation
		text  string
		want  []string // a part of each violation, in order
	}{
		{"spacing: late by τ, then on time", ruled(Spacing), `
			 20 start a/1
			100 start a/2
			150 start b/1
			200 start a/3`, nil},
		{"spacing: a hair too close", ruled(Spacing), `
			 20    start a/1
			 99.99 start a/2`, []string{`79.99ms after job "1"`}},
		{"spacing: within the recorder's slack", func(h History) []Violation { return Spacing(h, slack) }, `
			 25 start a/1
			100 start a/2
			174 start a/3`, []string{`74ms after job "2"`}},
		{"spacing: a retry counts", ruled(Spacing), `
			  0 start a/1
			 10 end   a/1 outcome=failed
			 50 start a/1 attempt=2`, []string{"50ms"}},

		{"windows: 11 in a second and τ", ruled(Windows), even(12, 100), nil},
		{"windows: 12 in a second", ruled(Windows), even(12, 90), []string{"12 starts within 990ms, want at most 11 in 1s"}},
		{"windows: 3 in an interval", ruled(Windows), `
			  0 start a/1
			 40 start a/2
			 80 start a/3`, []string{"3 starts within 80ms, want at most 2 in 100ms"}},
		{"windows: a little fast for ten seconds", ruled(Windows), even(102, 98.9),
			// Eleven starts in a second are allowed, and 98.9 ms × 11 is more than a second: only
			// the long window sees it.
			[]string{"102 starts within 9.9889s, want at most 101 in 10s"}},

		{"slots: exactly an interval", ruled(Slots), `
			  1 start a/1 slot=0.001
			101 start a/2 slot=100.001`, nil},
		{"slots: a µs too close, and recorded out of order", ruled(Slots), `
			101 start a/2 slot=100
			102 start a/1 slot=0.001`, []string{"slot 99.999ms after that of job \"1\""}},
		{"slots: one slot, two starts", ruled(Slots), `
			  1 start a/1 slot=1
			101 start a/2 slot=1`, []string{"slot 0s after"}},
		{"slots: none", ruled(Slots), `
			  1 start a/1`, []string{"no slot"}},
		{"slots: every tenant has its own", ruled(Slots), `
			  1 start a/1 slot=1
			  1 start b/1 slot=1`, nil},

		{"on time: at its slot, and τ later", ruled(OnTime), `
			100 start a/1 slot=100
			220 start a/2 slot=200`, nil},
		{"on time: early", ruled(OnTime), `
			 99.999 start a/1 slot=100`, []string{"1µs before its slot"}},
		{"on time: too late", ruled(OnTime), `
			120.001 start a/1 slot=100`, []string{"20.001ms after its slot"}},
		{"on time: the slot is by the wall clock", ruled(OnTime), `
			  5 start a/1 slot=100 wall=101`, nil},

		{"attempts: they may skip", Attempts, `
			  1 start a/1 attempt=1
			  2 start a/1 attempt=3`, nil},
		{"attempts: the id was accepted again after it had been cancelled, or was dead and removed", Attempts, `
			0 start a/j attempt=1
			1 end a/j attempt=1 outcome=retry
			2 start a/j attempt=2
			3 end a/j attempt=2 outcome=dead
			4 start a/j attempt=1
			5 end a/j attempt=1 outcome=cancelled
			6 start a/j attempt=1`, nil},
		{"attempts: from 1 again, and it was done", Attempts, `
			0 start a/j attempt=1
			1 end a/j attempt=1 outcome=done
			2 start a/j attempt=1`, []string{"attempt 1 after attempt 1"}},
		{"attempts: from 2 again after it was cancelled", Attempts, `
			0 start a/j attempt=1
			1 start a/j attempt=2
			2 end a/j attempt=2 outcome=cancelled
			3 start a/j attempt=2`, []string{"attempt 2 after attempt 2"}},
		{"ends: those of another life", Ends, `
			0 start a/j attempt=1
			1 end a/j attempt=1 outcome=cancelled
			2 start a/j attempt=1
			3 end a/j attempt=1 outcome=done`, nil},
		{"attempts: again the same", Attempts, `
			  1 start a/1 attempt=2
			  2 start a/1 attempt=2`, []string{"attempt 2 after attempt 2"}},
		{"attempts: backwards", Attempts, `
			  1 start a/1 attempt=3
			  2 start a/1 attempt=1`, []string{"attempt 1 after attempt 3"}},

		{"ends: each attempt has its own", Ends, `
			  1 start a/1
			  2 end   a/1 outcome=failed
			  3 start a/1 attempt=2
			  4 end   a/1 attempt=2 outcome=done
			  5 end   a/2 outcome=done`, nil},
		{"ends: one attempt, two ends", Ends, `
			  1 start a/1
			  2 end   a/1 outcome=failed
			  3 end   a/1 outcome=done`, []string{"attempt 1 ended as done, and was failed before"}},

		{"one owner: after the end, and after a kill", OneOwner, `
			  1 start a/1 pid=7
			  2 end   a/1 pid=7 outcome=done
			  3 start a/1 attempt=2 pid=7
			  4 cut pid=7
			  5 start a/1 attempt=3 pid=8
			  5 start b/1 pid=8`, nil},
		{"one owner: two at a time", OneOwner, `
			  1 start a/1 pid=7
			  2 cut pid=8
			  3 start a/1 attempt=2 pid=9
			  4 end   a/1 outcome=done pid=7`, []string{"attempt 2, while attempt 1 ran"}},
		{"one owner: the end of another attempt", OneOwner, `
			  1 start a/1 attempt=2
			  2 end   a/1 attempt=1 outcome=failed
			  3 start a/1 attempt=3`, []string{"attempt 3, while attempt 2 ran"}},

		{"duplicated: a retry has a reason", Duplicated, `
			  1 start a/1
			  2 end   a/1 outcome=failed
			  3 start a/1 attempt=2`, nil},
		{"duplicated: its process was killed while it ran", Duplicated, `
			  1 start a/1 pid=7
			  2 cut pid=7
			  3 start a/1 attempt=2 pid=8`, nil},
		{"duplicated: its process was killed while it reported", Duplicated, `
			  1 start a/1 pid=7
			  2 end   a/1 pid=7 outcome=done
			  3 cut pid=7
			  4 start a/1 attempt=2 pid=8`, nil},
		{"duplicated: its process was killed long after", Duplicated, `
			   1 start a/1 pid=7
			   2 end   a/1 pid=7 outcome=done
			2000 cut pid=7
			3000 start a/1 attempt=2 pid=8`, []string{"attempt 1 was done"}},
		{"duplicated: it could not report, for Redis was down", Duplicated, `
			   1 start a/1 pid=7
			  10 end   a/1 pid=7 outcome=done
			  11 down
			4000 up
			5000 cut pid=7
			8000 start a/1 attempt=2 pid=8`, nil},
		{"duplicated: Redis had been down before", Duplicated, `
			   1 down
			  10 up
			  11 start a/1 pid=7
			  12 end   a/1 pid=7 outcome=done
			5000 cut pid=7
			8000 start a/1 attempt=2 pid=8`, []string{"attempt 1 was done"}},
		{"duplicated: Redis was back long ago", Duplicated, `
			   1 start a/1 pid=7
			  10 end   a/1 pid=7 outcome=done
			  11 down
			  12 up
			5000 cut pid=7
			8000 start a/1 attempt=2 pid=8`, []string{"attempt 1 was done"}},
		{"duplicated: another process was killed", Duplicated, `
			  1 start a/1 pid=7
			  2 cut pid=8
			  3 start a/1 attempt=2 pid=9`, []string{"attempt 1 still ran"}},
		{"duplicated: while it runs", Duplicated, `
			  1 start a/1
			  3 start a/1 attempt=2
			  4 end   a/1 outcome=done`, []string{"attempt 1 still ran"}},
		{"duplicated: its process had been killed before", Duplicated, `
			  1 cut pid=7
			  2 start a/1 pid=7
			  3 start a/1 attempt=2 pid=8`, []string{"attempt 1 still ran"}},

		{"lost: an accepted job has an end", Lost, `
			  0 offer a/1
			  1 accept a/1
			  2 offer a/2
			  3 refuse a/2
			  4 offer a/3
			  5 start a/1
			  6 end a/1 outcome=done`, nil},
		{"lost: never started", Lost, `
			  0 offer a/1
			  1 accept a/1`, []string{"never ended"}},
		{"lost: its last attempt failed, and nothing came of it", Lost, `
			  0 offer a/1
			  1 accept a/1
			  2 start a/1
			  3 end a/1 outcome=failed`, []string{"never ended"}},
		{"lost: the job of another tenant ended", Lost, `
			  0 accept a/1
			  2 start b/1
			  3 end b/1 outcome=done`, []string{"never ended"}},

		{"unexpected: an offer without an answer may start", Unexpected, `
			  0 offer a/1
			  1 start a/1`, nil},
		{"unexpected: refused, then accepted", Unexpected, `
			  0 offer a/1
			  1 refuse a/1
			  2 offer a/1
			  3 accept a/1
			  4 start a/1`, nil},
		{"unexpected: never offered", Unexpected, `
			  0 offer a/1
			  1 start a/2`, []string{"not offered"}},
		{"unexpected: refused", Unexpected, `
			  0 offer a/1
			  1 refuse a/1
			  2 start a/1`, []string{"was refused"}},

		{"bound: two wait", bound(2), `
			  0 accept a/1
			  1 accept a/2
			  2 start a/1
			  3 accept a/3
			  4 end a/2 outcome=expired
			  5 start a/4
			  6 accept a/4
			  7 accept b/5
			  8 accept a/1
			  9 accept a/6`, nil},
		{"bound: three wait", bound(2), `
			  0 accept a/1
			  1 accept a/2
			  2 accept a/3`, []string{"3 accepted and not started, want at most 2"}},

		{"unanswered: each offer has its answer", Unanswered, `
			  0 offer a/1
			  1 refuse a/1
			  2 offer a/1
			  3 accept a/1`, nil},
		{"unanswered: none", Unanswered, `
			  0 offer a/1`, []string{"1 offers and 0 answers"}},
		{"unanswered: two", Unanswered, `
			  0 offer a/1
			  1 accept a/1
			  2 refuse a/1`, []string{"1 offers and 2 answers"}},

		{"order: as accepted", Order, `
			  0 offer a/1
			  1 accept a/1
			  2 offer a/2
			  3 accept a/2
			  4 start a/1 slot=4
			  5 start a/2 slot=5`, nil},
		{"order: offered together, either may be first", Order, `
			  0 offer a/1
			  1 offer a/2
			  2 accept a/1
			  3 accept a/2
			  4 start a/2 slot=4
			  5 start a/1 slot=5`, nil},
		{"order: the later one first", Order, `
			  0 offer a/1
			  1 accept a/1
			  2 offer a/2
			  3 accept a/2
			  4 start a/2 slot=4
			  5 start a/1 slot=5`, []string{`before job "1"`}},
		{"order: slots count, not the moments of waking up", Order, `
			  0 offer a/1
			  1 accept a/1
			  2 offer a/2
			  3 accept a/2
			  7 start a/1 slot=4
			  6 start a/2 slot=5`, nil},
		{"order: a retry may come at any time", Order, `
			  0 offer a/1
			  1 accept a/1
			  2 offer a/2
			  3 accept a/2
			  4 start a/1 slot=4
			  5 start a/2 slot=5
			  6 start a/1 attempt=2 slot=6`, nil},

		{"in flight: two at a time", inFlight(2), `
			  1 start a/1
			  2 start a/2
			  3 end a/1 outcome=done
			  4 start a/3`, nil},
		{"in flight: a killed process runs nothing", inFlight(1), `
			  1 start a/1 pid=7
			  2 cut pid=7
			  4 start a/2 pid=8`, nil},
		{"in flight: three at a time", inFlight(2), `
			  1 start a/1
			  2 start a/2
			  4 start a/3`, []string{"3 running, want at most 2"}},
		{"in flight: two attempts of one job are two", inFlight(1), `
			  1 start a/1
			  2 start a/1 attempt=2`, []string{"2 running, want at most 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.check(script(t, tc.text))
			for i, v := range got {
				if i >= len(tc.want) || !strings.Contains(v.String(), tc.want[i]) {
					t.Errorf("unexpected: %v", v)
				}
			}
			if len(got) < len(tc.want) {
				t.Errorf("not found: %q", tc.want[len(got):])
			}
		})
	}
}

func inFlight(most int) func(History) []Violation {
	return func(h History) []Violation { return InFlight(h, "a", most) }
}

func bound(most int) func(History) []Violation {
	return func(h History) []Violation { return Level(h, "a", most) }
}

// TestRatesThatChange gives starts rules of their own: what both neighbours' rules forbid is found,
// and nothing else.
func TestRatesThatChange(t *testing.T) {
	under := func(n int64, tau time.Duration) *Rule { return &Rule{Rate: buckets.PerSecond(n), Tolerance: tau} }
	slow, fast := under(2, 20*time.Millisecond), under(10, 20*time.Millisecond)
	for _, tc := range []struct {
		name   string
		starts []startAt
		want   string // the checks that find something
	}{
		{"faster", []startAt{{0, slow}, {500, slow}, {600, fast}, {700, fast}}, ""},
		{"slower", []startAt{{0, fast}, {100, fast}, {200, slow}, {700, slow}}, ""},
		{"slow ones too close", []startAt{{0, fast}, {100, slow}, {200, slow}}, "slots; spacing; "},
		{"closer than either", []startAt{{0, slow}, {70, fast}}, "slots; spacing; "},
		{"late by the larger tolerance", []startAt{{0, under(10, 50*time.Millisecond)}, {100, fast}}, ""},
		{"a window of both rates", append([]startAt{{0, slow}, {500, slow}, {1000, slow}}, burst(1100, 90, 13, fast)...),
			"slots; slots; slots; slots; slots; slots; slots; slots; slots; slots; slots; slots; windows; windows; windows; "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h History
			for i, s := range tc.starts {
				h = append(h, Event{Kind: Start, At: s.ms * 1e6, Wall: s.ms * 1000, Slot: s.ms*1000 + 1, Tenant: "a",
					ID: fmt.Sprint(i), Attempt: 1, Under: s.rule})
			}
			got := ""
			for _, check := range []func(History, Rule) []Violation{Slots, Spacing, Windows} {
				for _, v := range check(h, Rule{}) {
					got += v.Check + "; "
				}
			}
			if got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
	late := Event{Kind: Start, Wall: 40_000, Slot: 1, Under: under(10, 50*time.Millisecond)}
	if got := OnTime(History{late}, Rule{}); len(got) > 0 {
		t.Errorf("on time by its own tolerance: %v", got)
	}
	late.Under = fast
	if got := OnTime(History{late}, Rule{}); len(got) != 1 {
		t.Errorf("late by its own tolerance, and not found")
	}
}

// startAt is a start, with the rule that it came under.
type startAt struct {
	ms   int64
	rule *Rule
}

// burst is n starts, one every so many ms.
func burst(from, every int64, n int, rule *Rule) (out []startAt) {
	for i := range n {
		out = append(out, startAt{from + int64(i)*every, rule})
	}
	return out
}

// A tenant that keeps its place may start that much early, and no more often for it.
func TestKeptPlaces(t *testing.T) {
	rule := tenPerSecond
	rule.Keep = 50 * time.Millisecond
	starts := func(at ...int64) (h History) {
		for i, ms := range at {
			h = append(h, Event{Kind: Start, Tenant: "a", ID: fmt.Sprint(i), At: ms * 1e6, Slot: ms*1000 + 1})
		}
		return h
	}
	near := starts(0, 50, 150, 250, 350, 450, 550, 650, 750, 850, 950)
	if found := slices.Concat(Spacing(near, rule), Slots(near, rule), Windows(near, rule)); len(found) > 0 {
		t.Errorf("a place that was kept: %v", found)
	}
	if found := Slots(starts(0, 49), rule); len(found) != 1 {
		t.Errorf("slots 49 ms apart: %v", found)
	}
	if found := Windows(starts(0, 50, 100, 150, 200), rule); len(found) == 0 {
		t.Error("five starts in 200 ms are within the windows")
	}
}

func TestRecovered(t *testing.T) {
	h := script(t, `
		0 offer  a/1
		1 offer  a/2
		2 start  a/1
		3 accept a/1
		4 start  a/2
		5 start  a/2 attempt=2
		6 start  a/3`)
	if got := Recovered(h); len(got) != 1 || got[0].ID != "2" {
		t.Errorf("recovered %v, want job 2", got)
	}
}

// even scripts n starts, one every so many ms.
func even(n int, ms float64) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%g start a/%d\n", float64(i)*ms, i)
	}
	return b.String()
}

func TestSlipIsExact(t *testing.T) {
	sevenPerSecond := Rule{Rate: buckets.PerSecond(7)}
	h := func(last int64) History {
		var h History
		for i := range 701 {
			h = append(h, Event{Kind: Start, Tenant: "a", Slot: 1_000_000 + int64(i)*1_000_000/7})
		}
		h[700].Slot = 1_000_000 + last
		return h
	}
	for _, tc := range []struct {
		last int64
		want time.Duration
	}{
		{100_000_000, 0}, // the 700th slot after the first, at 7/s
		{100_000_001, time.Microsecond},
		{99_999_300, -700 * time.Microsecond}, // 142857 µs each, as rounding would have it
	} {
		if got := Slip(h(tc.last), "a", sevenPerSecond); got != tc.want {
			t.Errorf("last slot at %d µs: slip %v, want %v", tc.last, got, tc.want)
		}
	}
	if got := Slip(h(5)[:1], "a", sevenPerSecond); got != 0 {
		t.Errorf("one start: slip %v", got)
	}
}

func TestStartsAndAccountsRunTheirChecks(t *testing.T) {
	h := script(t, `
		 0 offer  a/1
		 1 accept a/1
		10 start  a/1 slot=11
		20 start  a/1 slot=11
		60 start  b/2 slot=10`)
	names := func(l []Violation) (s string) {
		for _, v := range l {
			s += v.Check + "; "
		}
		return s
	}
	if got, want := names(Starts(h, tenPerSecond)), "on time; spacing; slots; attempts; on time; "; got != want {
		t.Errorf("starts: %s, want %s", got, want)
	}
	if got, want := names(Accounts(h)), "lost; duplicated; unexpected; "; got != want {
		t.Errorf("accounts: %s, want %s", got, want)
	}
}
