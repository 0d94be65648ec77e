package verify

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

var epoch = time.UnixMilli(2_000_000_000_000)

func at(ms float64) time.Time { return epoch.Add(time.Duration(ms * float64(time.Millisecond))) }

// granted is a slot at ms, granted at that instant, for a tenant with 10/s.
func granted(job string, attempt int, ms float64) shaper.LogEntry {
	tenant, id, _ := strings.Cut(job, "/")
	return shaper.LogEntry{At: at(ms), Kind: shaper.LogGranted, Tenant: tenant, ID: id, Attempt: attempt, Slot: at(ms), Granted: at(ms),
		Rate: buckets.PerSecond(10), Tolerance: 20 * time.Millisecond}
}

// ended is the end of a start that began late ms after its slot and ended 30 ms after it.
func ended(job string, attempt int, became string, late float64) shaper.LogEntry {
	tenant, id, _ := strings.Cut(job, "/")
	return shaper.LogEntry{Kind: shaper.LogEnded, Tenant: tenant, ID: id, Attempt: attempt, Became: became,
		Began: true, Late: time.Duration(late * float64(time.Millisecond)), Took: 30 * time.Millisecond}
}

func with(e shaper.LogEntry, change func(*shaper.LogEntry)) shaper.LogEntry { change(&e); return e }

// TestLogs judges logs that keep every promise, and logs that each break one.
func TestLogs(t *testing.T) {
	opened := shaper.LogEntry{At: at(-1), Kind: shaper.LogOpened}
	missed := func(ms float64) func(*shaper.LogEntry) { return func(e *shaper.LogEntry) { e.Missed = at(ms) } }
	rated := func(n int64) func(*shaper.LogEntry) {
		return func(e *shaper.LogEntry) { e.Rate = buckets.PerSecond(n) }
	}
	never := func(e *shaper.LogEntry) { e.Began, e.Never = false, true }
	common := func(e *shaper.LogEntry) { e.Common = buckets.PerSecond(5) }
	for _, tc := range []struct {
		name  string
		log   []shaper.LogEntry
		want  []string // a part of each violation
		words []string // of what was seen or not judged
	}{
		{"a start and a retry", []shaper.LogEntry{opened, granted("a/1", 1, 0), ended("a/1", 1, "retry", 1), granted("a/1", 2, 100), ended("a/1", 2, "done", 20)},
			nil, nil},
		{"slots too close", []shaper.LogEntry{opened, granted("a/1", 1, 0), granted("a/2", 1, 99.999)}, []string{"slots: slot 99.999ms"},
			[]string{"2 starts began whose end is not known"}},
		{"a missed slot counts", []shaper.LogEntry{opened, granted("a/1", 1, 0), with(granted("a/1", 1, 130), missed(0)), granted("a/2", 1, 200)},
			[]string{"slots: slot 70ms"}, []string{"1 missed slot, each replaced"}},
		{"a missed slot, replaced", []shaper.LogEntry{opened, granted("a/1", 1, 0), with(granted("a/1", 1, 130), missed(0)), ended("a/1", 1, "done", 0)}, nil, nil},
		{"a missed slot that never was", []shaper.LogEntry{opened, granted("a/1", 1, 0), with(granted("a/1", 1, 130), missed(5))},
			[]string{"attempts: attempt 1 after attempt 1", "duplicated: attempt 1"}, nil},
		{"early", []shaper.LogEntry{opened, granted("a/1", 1, 0), ended("a/1", 1, "done", -0.001)}, []string{"on time: 1µs before"}, nil},
		{"late", []shaper.LogEntry{opened, granted("a/1", 1, 0), ended("a/1", 1, "done", 20.001)}, []string{"on time: 20.001ms after"}, nil},
		{"starts closer than their slots allow", []shaper.LogEntry{opened, granted("a/1", 1, 0), ended("a/1", 1, "done", 21), granted("a/2", 1, 100), ended("a/2", 1, "done", 0)},
			[]string{"on time: 21ms", "spacing: 79ms"}, nil},
		{"two ends", []shaper.LogEntry{opened, granted("a/1", 1, 0), ended("a/1", 1, "retry", 0), ended("a/1", 1, "done", 0)},
			[]string{"ends: attempt 1 ended as done"}, nil},
		{"again after it was done", []shaper.LogEntry{opened, granted("a/1", 1, 0), ended("a/1", 1, "done", 0), granted("a/1", 2, 100)},
			[]string{"duplicated: attempt 2, and attempt 1 was done"}, nil},
		{"again after a lost lease", []shaper.LogEntry{opened, granted("a/1", 1, 0), with(ended("a/1", 1, "", 0), func(e *shaper.LogEntry) { e.Kind = shaper.LogLost }),
			granted("a/1", 2, 100)}, nil, []string{"1 lost lease"}},
		{"attempts go back", []shaper.LogEntry{opened, granted("a/1", 2, 0), ended("a/1", 2, "retry", 0), granted("a/1", 1, 100)},
			[]string{"attempts: attempt 1 after attempt 2"}, nil},
		{"an id that is used again after its retention", []shaper.LogEntry{opened, granted("a/1", 1, 0), ended("a/1", 1, "done", 0), granted("a/1", 1, 90_000)}, nil, nil},
		{"an id that is used again too soon", []shaper.LogEntry{opened, granted("a/1", 1, 0), ended("a/1", 1, "done", 0), granted("a/1", 1, 50_000)},
			[]string{"attempts", "duplicated"}, nil},
		{"a dead job that was removed", []shaper.LogEntry{opened, granted("a/1", 1, 0), ended("a/1", 1, "dead", 0), granted("a/1", 1, 100)}, nil, nil},
		{"a dead job that came back", []shaper.LogEntry{opened, granted("a/1", 1, 0), ended("a/1", 1, "dead", 0), granted("a/1", 2, 100)}, nil, nil},
		{"a slot that was given up is no attempt", []shaper.LogEntry{opened, granted("a/1", 1, 0), with(ended("a/1", 1, "back", 0), never),
			granted("a/1", 1, 100), with(granted("a/1", 1, 230), missed(100)), with(ended("a/1", 1, "back", 0), never),
			granted("a/1", 1, 90_000), ended("a/1", 1, "retry", 0), granted("a/1", 2, 90_100)}, nil, []string{"1 missed slot", "2 slots that nothing began in"}},
		{"a slot that was given up, and its number twice", []shaper.LogEntry{opened, granted("a/1", 1, 0), with(ended("a/1", 1, "back", 0), never),
			granted("a/1", 1, 100), ended("a/1", 1, "retry", 0), granted("a/1", 1, 200)}, []string{"attempts: attempt 1 after attempt 1"}, nil},
		{"as versions before numbered it", []shaper.LogEntry{opened, granted("a/1", 1, 0), with(ended("a/1", 1, "back", 0), never), granted("a/1", 2, 100)}, nil, nil},
		{"a rate that changes", []shaper.LogEntry{opened, granted("a/1", 1, 0), with(granted("a/2", 1, 500), rated(2)), with(granted("a/3", 1, 550), rated(20))},
			nil, []string{"2 changes of a tenant's rate"}},
		{"a rate that changes, broken", []shaper.LogEntry{opened, granted("a/1", 1, 0), with(granted("a/2", 1, 500), rated(2)), with(granted("a/3", 1, 549), rated(20))},
			[]string{"slots: slot 49ms"}, nil},
		{"a common rate", []shaper.LogEntry{opened, with(granted("a/1", 1, 0), common), with(granted("b/1", 1, 200), common)}, nil, nil},
		{"a common rate, broken", []shaper.LogEntry{opened, with(granted("a/1", 1, 0), common), ended("a/1", 1, "done", 0), with(granted("b/1", 1, 170), common), ended("b/1", 1, "done", 0)},
			[]string{"spacing: 170ms after job \"a/1\"", "slots: slot 170ms after that of job \"a/1\""}, nil},
		{"Redis' clock steps back", []shaper.LogEntry{opened, granted("a/1", 1, 5000), granted("a/2", 1, 60), granted("a/3", 1, 160)},
			[]string{"slots: slot 0s"}, []string{"clock stepped back (1 time)"}},
		{"Redis' clock steps back, and the slots lie ahead", []shaper.LogEntry{opened, granted("a/1", 1, 5000),
			with(granted("a/2", 1, 100), func(e *shaper.LogEntry) { e.Granted = at(0) }), granted("a/3", 1, 200)}, nil, []string{"clock stepped back (1 time)"}},
		{"a trimmed log", []shaper.LogEntry{ended("a/0", 1, "done", 0), granted("a/1", 1, 0)}, nil, []string{"what was before", "1 start began whose end"}},
		{"off meanwhile, noise, and all that happens", []shaper.LogEntry{opened, granted("a/1", 1, 0), opened, {Kind: shaper.LogNoise}, {Kind: shaper.LogRestart},
			{Kind: shaper.LogPaused, Tenant: "a"}, with(ended("a/1", 1, "back", 0), func(e *shaper.LogEntry) { e.Began, e.Never = false, true })},
			nil, []string{"while the log was off, 1 time", "1 entry of the log that cannot be read", "1 restart of Redis", "1 pause by hand", "1 slot that nothing began in"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBook(Options{})
			for _, e := range tc.log {
				b.enter(e)
			}
			v := b.judge()
			found := v.Violations()
			for i, want := range tc.want {
				if i < len(found) && !strings.HasPrefix(found[i].Check+": "+found[i].What, want) {
					t.Errorf("found %v, want %s", found[i], want)
				}
			}
			if len(found) != len(tc.want) || v.Held() != (len(tc.want) == 0) {
				t.Errorf("found %v, want %d violations", found, len(tc.want))
			}
			text := strings.Join(append(v.Seen, v.Unjudged...), "\n")
			for _, w := range tc.words {
				if !strings.Contains(text, w) {
					t.Errorf("no %q in\n%s", w, text)
				}
			}
			if opens := tc.log[0].Kind == shaper.LogOpened; opens == strings.Contains(text, "what was before") {
				t.Errorf("a log that begins with %c: %s", tc.log[0].Kind, text)
			}
		})
	}
}

func TestOneTenant(t *testing.T) {
	b := newBook(Options{Tenant: "a"})
	for _, e := range []shaper.LogEntry{granted("a/1", 1, 0), granted("b/1", 1, 10), granted("b/2", 1, 20), granted("a/2", 1, 100)} {
		b.enter(e)
	}
	if v := b.judge(); !v.Held() || v.Starts != 2 {
		t.Errorf("%d starts, %v; want the two of a, and nothing found", v.Starts, v.Violations())
	}
}

// Findings say the same to people and to programs.
func TestPrint(t *testing.T) {
	b := newBook(Options{})
	for i := range 12_345 {
		b.enter(granted(fmt.Sprint("a/", i), 1, float64(100*i)))
		b.enter(ended(fmt.Sprint("a/", i), 1, "done", float64(i%4)/10))
	}
	for i := range 12 {
		b.enter(granted(fmt.Sprint("b/", i), 1, float64(2_000_000+i)))
	}
	v := b.judge()
	v.Of = "downstream d"
	var text, lines strings.Builder
	if err := v.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"downstream d: 12 357 starts in 33m20.011s, from ",
		"\nspacing: held, 12 345 starts of 1 tenant, least gap 99.7 ms at an interval of 100 ms\n",
		"\non time: held, 12 345 starts of 1 tenant, the latest 0.3 ms after its slot, of 20 ms\n",
		"\nslots: BROKEN 11 times, 12 357 slots of 2 tenants\n",
		"  slots: tenant b, job 1: slot 1ms after that of job \"0\", want at least 100ms\n",
		"  and 1 violation more\n",
		"\na start is: the first byte of a request, the release of a program, ",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if got := v.Line(); got != "checked: 12 345 starts of 1 tenant, least gap 99.7 ms at an interval of 100 ms; slots BROKEN, see shaper verify" {
		t.Errorf("line %q", got)
	}
	if err := v.PrintJSON(cliutil.NewJSONLines(&lines)); err != nil {
		t.Fatal(err)
	}
	violations := 0
	for line := range strings.Lines(lines.String()) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if o["violation"] == "slots" && o["tenant"] == "b" {
			violations++
		}
	}
	if violations != 11 || !strings.Contains(lines.String(), `"of":"downstream d","held":false,"starts":12357,`) ||
		!strings.Contains(lines.String(), `"start":"the first byte of a request,`) {
		t.Errorf("%d violations in\n%s", violations, &lines)
	}
}

// A history file is judged by what is in it.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	rec, err := history.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	us := epoch.UnixMicro()
	o := FileOptions{Rule: history.Rule{Rate: buckets.PerSecond(10), Tolerance: 20 * time.Millisecond}}
	for _, step := range []struct {
		name   string
		events []history.Event
		want   string // checks that find something
		words  string // something that is not judged, or was seen
	}{
		{"starts alone", []history.Event{{Kind: history.Start, At: 1e9, Tenant: "a", ID: "1", Attempt: 1}}, "", "slots, on time: no start"},
		{"slots", []history.Event{{Kind: history.End, At: 2e9, Tenant: "a", ID: "1", Attempt: 1, Outcome: history.Failed},
			{Kind: history.Start, At: 3e9, Wall: us + 3_000_000, Tenant: "a", ID: "1", Attempt: 2, Slot: us + 3_000_000}}, "slots; ", "unexpected, recovered, order"},
		{"offers", []history.Event{{Kind: history.Offer, At: 4e9, Tenant: "a", ID: "2"}}, "slots; unexpected; unexpected; ", "lost, bound: no answer"},
		{"an answer", []history.Event{{Kind: history.Accept, At: 5e9, Tenant: "a", ID: "2"}}, "slots; unexpected; unexpected; lost; ", "bound: want --bound"},
		{"a recovered job", []history.Event{{Kind: history.Offer, At: 6e9, Tenant: "a", ID: "3"},
			{Kind: history.Start, At: 7e9, Wall: us + 7_000_000, Tenant: "a", ID: "3", Attempt: 1, Slot: us + 7_000_000}},
			"slots; unexpected; unexpected; lost; ", "1 recovered job"},
	} {
		for _, e := range step.events {
			if err := rec.Record(e); err != nil {
				t.Fatal(err)
			}
		}
		v, err := File(path, o)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range v.Promises {
			for _, f := range p.Broken {
				got += f.Check + "; "
			}
		}
		text := strings.Join(append(v.Seen, v.Unjudged...), "\n")
		if got != step.want || !strings.Contains(text, step.words) {
			t.Errorf("%s: found %q, want %q, and %q in %q", step.name, got, step.want, step.words, text)
		}
	}
	o.Bound, o.Tenant = 1, "b"
	if v, err := File(path, o); err != nil || len(v.Promises) > 0 {
		t.Errorf("a tenant that is not there: %v %+v", err, v)
	}
}
