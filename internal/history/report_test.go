package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRulesFollowTheRate checks starts of a tenant whose rate was changed from 10/s to 20/s and
// back.
func TestRulesFollowTheRate(t *testing.T) {
	const sets = `
		   0 set a outcome=10/s
		   1 set a outcome=10/s
		1000 set a outcome=20/s
		1010 set a outcome=20/s
		3000 set a outcome=10/s
		3020 set a outcome=10/s
	`
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"as fast as the rate of the time", `
			 900 start a/1 slot=900
			1000 start a/2 slot=1000
			1050 start a/3 slot=1050
			1100 start a/4 slot=1100
			3300 start a/5 slot=3300
			3400 start a/6 slot=3400`, nil},
		{"either rate may hold while it is changed", `
			2970 start a/1 slot=2970
			3020 start a/2 slot=3020
			3070 start a/3 slot=3070`, nil},
		{"before the change", `
			 700 start a/1 slot=700
			 750 start a/2 slot=750`, []string{"spacing", "slots"}},
		{"after it was changed back", `
			3300 start a/1 slot=3300
			3350 start a/2 slot=3350`, []string{"spacing", "slots"}},
		{"too fast for either", `
			2000 start a/1 slot=2000
			2020 start a/2 slot=2020
			2045 start a/3 slot=2045`, []string{"spacing", "slots", "spacing", "windows", "slots"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := script(t, sets+tc.text)
			spans, err := Spans(h, "a")
			if err != nil || len(spans) != 3 {
				t.Fatalf("%v, %v: want three spans", spans, err)
			}
			var got []string
			rule := Rule{Tolerance: 20 * time.Millisecond}
			Under(h, spans, rule)
			for _, v := range Starts(h, rule) {
				got = append(got, v.Check)
			}
			if strings.Join(got, " ") != strings.Join(tc.want, " ") {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
	if _, err := Spans(script(t, "0 set a outcome=10/s\n1 set a outcome=20/s"), "a"); err == nil {
		t.Error("no error for a change that was begun and not ended")
	}
}

// TestFrozenLeavesOutOnlyWhatWasStopped: lateness is excused by a stop of the start's own process,
// between its slot and the start.
func TestFrozenLeavesOutOnlyWhatWasStopped(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       int
	}{
		{"stopped at the door", `
			 99 cut pid=1
			900 go  pid=1
			901 start a/1 slot=98`, 1},
		{"another process was", `
			 99 cut pid=2
			900 go  pid=2
			901 start a/1 slot=98`, 0},
		{"long before its slot", `
			 99 cut pid=1
			200 go  pid=1
			901 start a/1 slot=300`, 0},
		{"in time", `
			 99 cut pid=1
			100 go  pid=1
			110 start a/1 slot=98`, 0},
		{"it was killed, and a dead process starts nothing", `
			 99 cut pid=1
			901 start a/1 slot=98`, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := script(t, tc.text)
			rest, frozen := Frozen(h, tenPerSecond)
			if len(frozen) != tc.want || len(rest) != len(h)-tc.want {
				t.Errorf("%d left out, %d left of %d; want %d out", len(frozen), len(rest), len(h), tc.want)
			}
		})
	}
}

// TestJudge writes a history with one fault of each kind, and one without.
func TestJudge(t *testing.T) {
	const sets = "{\"kind\":\"set\",\"at\":1,\"tenant\":\"a\",\"outcome\":\"10/s\"}\n"
	line := func(kind Kind, at int, id, more string) string {
		ms := int64(at) * 1_000_000
		return fmt.Sprintf(`{"kind":%q,"at":%d,"wall":%d,"pid":1,"tenant":"a","id":%q%s}`+"\n", kind, ms, ms/1000, id, more)
	}
	write := func(t *testing.T, text string) string {
		path := filepath.Join(t.TempDir(), "history")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	terms := Terms{Tolerance: 20 * time.Millisecond, InFlight: 1}
	good := sets + line(Offer, 10, "1", "") + line(Accept, 11, "1", "") + line(Offer, 12, "2", "") + line(Refuse, 13, "2", "") +
		line(Start, 100, "1", `,"attempt":1,"slot":100000`) + line(End, 110, "1", `,"attempt":1,"outcome":"failed"`) +
		line(Start, 205, "1", `,"attempt":2,"slot":200000`) + line(End, 210, "1", `,"attempt":2,"outcome":"done"`) +
		`{"kind":"fault","at":120000000,"outcome":"kill"}` + "\n"
	report, err := Judge(write(t, good), terms)
	if err != nil {
		t.Fatal(err)
	}
	const want = "2 starts of 1 jobs, 2 offered, 1 refused, 1 faults (kill 1): lost 0, unexpected 0, spacing 0, windows 0, slots 0, " +
		"on time 0, attempts 0, duplicated 0, in flight 0; least gap 105ms of interval 100ms"
	if got := report.String(); got != want || len(report.Violations()) != 0 {
		t.Errorf("got  %s\nwant %s\n%v", got, want, report.Violations())
	}

	for check, text := range map[string]string{
		"lost":       line(Offer, 300, "3", "") + line(Accept, 301, "3", ""),
		"unexpected": line(Start, 400, "3", `,"attempt":1,"slot":400000`) + line(End, 401, "3", `,"attempt":1,"outcome":"done"`),
		"spacing":    line(Offer, 20, "3", "") + line(Start, 250, "3", `,"attempt":1,"slot":250000`),
		"windows": line(Offer, 20, "3", "") + line(Start, 250, "3", `,"attempt":1,"slot":250000`) +
			line(Offer, 20, "4", "") + line(Start, 260, "4", `,"attempt":1,"slot":260000`),
		"slots":      line(Offer, 20, "3", "") + line(Start, 300, "3", `,"attempt":1,"slot":299999`),
		"on time":    line(Offer, 20, "3", "") + line(Start, 330, "3", `,"attempt":1,"slot":300000`),
		"attempts":   line(Start, 300, "1", `,"attempt":2,"slot":300000`),
		"duplicated": line(Start, 300, "1", `,"attempt":3,"slot":300000`),
		"in flight": line(Offer, 20, "3", "") + line(Start, 300, "3", `,"attempt":1,"slot":300000`) +
			line(Offer, 20, "4", "") + line(Start, 400, "4", `,"attempt":1,"slot":400000`),
	} {
		report, err := Judge(write(t, good+text), terms)
		if err != nil || len(report.Found[check]) == 0 {
			t.Errorf("%s: not found (%v): %v", check, err, report)
		}
	}
	if _, err := Judge(write(t, line(Start, 1, "1", "")), terms); err == nil {
		t.Error("no error for a tenant whose rate is not known")
	}
}

// TestArrivals judges what a downstream wrote down, by the rates and the stops that the history tells.
func TestArrivals(t *testing.T) {
	write := func(name string, lines ...string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	event := func(kind Kind, ms, pid int, more string) string {
		return fmt.Sprintf(`{"kind":%q,"at":%d,"wall":%d,"pid":%d%s}`+"\n", kind, ms*1_000_000, ms*1000, pid, more)
	}
	arrival := func(ms, pid int, id string, slot int) string {
		return event(Start, ms, pid, fmt.Sprintf(`,"tenant":"a","id":%q,"attempt":1,"slot":%d`, id, slot*1000))
	}
	told := write("told", event(Set, 0, 9, `,"tenant":"a","outcome":"10/s"`),
		arrival(99, 1, "1", 100), arrival(101, 1, "2", 200), // of the workers, which this is not about
		event(Cut, 305, 2, ""), event(Go, 420, 2, ""))
	for _, tc := range []struct {
		name string
		seen []string
		want string
	}{
		{"as promised", []string{arrival(101, 1, "1", 100), arrival(205, 1, "2", 200), arrival(401, 1, "3", 400)}, ""},
		{"too close", []string{arrival(130, 1, "1", 100), arrival(200, 1, "2", 200)}, "spacing"},
		{"late by a stop of its process", []string{arrival(421, 2, "1", 300), arrival(425, 1, "2", 400)}, ""},
		{"late by itself", []string{arrival(421, 1, "1", 300), arrival(425, 1, "2", 400)}, "spacing"},
		{"twice", []string{arrival(101, 1, "1", 100), arrival(190, 1, "1", 100)}, "slots"},
		{"before its slot", []string{arrival(99, 1, "1", 100)}, "on time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report, err := Arrivals(told, write("seen", tc.seen...), Terms{Tolerance: 20 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, check := range Checks {
				if len(report.Found[check]) > 0 {
					found = append(found, check)
				}
			}
			if got := strings.Join(found, " "); got != tc.want || report.Starts != len(tc.seen) {
				t.Errorf("found %q of %d arrivals, want %q: %v", got, report.Starts, tc.want, report.Violations())
			}
		})
	}
}
