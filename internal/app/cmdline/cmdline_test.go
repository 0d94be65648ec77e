package cmdline

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/shaper"
)

func TestConciseLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(NewConciseHandler(&out, slog.LevelInfo))
	log.Debug("not shown")
	log.Info("plain")
	log.Info("forged\n00:00:00.000 ERROR x\x1b[2J\xff")
	log.With("downstream", "d").WithGroup("g").Warn("with attributes", "time", "a b", "err", errors.New("no"))
	want := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} INFO  plain
\d\d:\d\d:\d\d\.\d{3} INFO  forged 00:00:00\.000 ERROR x\x{FFFD}\[2J\x{FFFD}
\d\d:\d\d:\d\d\.\d{3} WARN  with attributes  downstream=d g\.time="a b" g\.err=no
$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("got\n%s", &out)
	}
}

func TestClassify(t *testing.T) {
	for _, row := range []struct {
		err  error
		code int
	}{
		{fmt.Errorf("x: %w", shaper.ErrInvalid), 65},
		{fmt.Errorf("x: %w", shaper.ErrStore), 69},
		{errors.Join(cliutil.Usagef("x"), shaper.ErrStore), 64}, // what was chosen stays
	} {
		var exit *cliutil.Exit
		if err := Classify(row.err); !errors.As(err, &exit) || exit.Code != row.code {
			t.Errorf("%v: %v, want %d", row.err, err, row.code)
		}
	}
	if err := Classify(nil); err != nil {
		t.Errorf("nil: %v", err)
	}
	if err := Classify(shaper.ErrNotFound); !errors.Is(err, shaper.ErrNotFound) {
		t.Errorf("others stay: %v", err)
	}
}

func TestValues(t *testing.T) {
	var d, wait time.Duration
	var r buckets.Rate
	var n int
	var at time.Time
	set := func(f interface{ Set(string) error }, s string, good bool) {
		t.Helper()
		if err := f.Set(s); (err == nil) != good {
			t.Errorf("%q: %v", s, err)
		}
	}
	duration := &value[time.Duration]{&d, buckets.ParseDuration, durationText, ""}
	set(duration, "2d", true)
	set(duration, "two days", false)
	if d != 48*time.Hour || duration.String() != "48h0m0s" {
		t.Errorf("%v, %q", d, duration)
	}
	for _, row := range []struct {
		flag cli.Flag
		text string
		good bool
	}{
		{MaxWait("", &wait), "forever", true},
		{MaxWait("", &wait), "0s", false},
		{Rate("rate", "", &r), "1/90s", true},
		{Rate("rate", "", &r), "0/s", false},
		{Whole("n", "", &n), "7", true},
		{Whole("n", "", &n), "0", false},
		{Whole("n", "", &n), "1.5", false},
		{Time("at", "", &at), "2030-01-31T12:00:00Z", true},
		{Time("at", "", &at), "tomorrow", false},
	} {
		set(row.flag.(*cli.GenericFlag).Value, row.text, row.good)
	}
	if wait != -1 || n != 7 || at.Year() != 2030 || r.Events != 1 {
		t.Errorf("%v %v %v %v", wait, n, at, r)
	}
}

// A policy's fields are flags; a value that cannot be read is an error of the flag, one out of
// range is not.
func TestSettings(t *testing.T) {
	var p shaper.Policy
	flags := map[string]*cli.GenericFlag{}
	for _, f := range Settings(setting.Of(&p)) {
		flags[f.Names()[0]] = f.(*cli.GenericFlag)
	}
	for _, row := range []struct{ flag, text, err string }{
		{"rate", " 600/m ", ""},
		{"rate", "0/s", "want events per duration, at least 1, such as 10/s, 600/m or 1/90s (to stop a queue, pause it)"},
		{"depth", "5", ""},
		{"depth", "0", "want 1 to 10000000"},
		{"depth", "1.5", "want a whole number, 1 to 10000000"},
		{"weight", "5000", ""},
		{"on-full", "block", ""},
		{"on-full", "", "want reject, drop-oldest or block"},
		{"backoff", "1s..5m", ""},
		{"backoff", "1s", "want MIN..MAX with 1ms ≤ MIN ≤ MAX ≤ 30d"},
		{"timeout", "2d", ""},
		{"timeout", "0s", "want 1ms to 30d"},
		{"timeout", "soon", "want a duration such as 30s, 1h30m or 2d, 1ms to 30d"},
		{"max-wait", "forever", ""},
		{"max-wait", "-1s", "want 1ms to 366d, or forever"},
		{"max-wait", "never", "want a duration such as 30s, 1h30m or 2d, 1ms to 366d, or forever"},
	} {
		if err := flags[row.flag].Value.Set(row.text); err == nil && row.err != "" || err != nil && err.Error() != row.err {
			t.Errorf("--%s %q: %v; want %q", row.flag, row.text, err, row.err)
		}
	}
	want := shaper.Policy{Rate: buckets.Rate{Events: 600, Period: time.Minute}, Depth: 5, Weight: 5000, OnFull: shaper.Block,
		Backoff: shaper.Backoff{Min: time.Second, Max: 5 * time.Minute}, Timeout: 48 * time.Hour, MaxWait: -1}
	if p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	if got := flags["max-wait"].Value.String() + flags["retention"].Value.String() + flags["backoff"].Value.String(); got != "forever1s..5m0s" {
		t.Errorf("their texts are %q", got)
	}
}

// Flags that are not fields of a policy say what they want in the same words.
func TestWords(t *testing.T) {
	var d time.Duration
	var n int
	for _, row := range []struct {
		flag      cli.Flag
		text, err string
	}{
		{Duration("d", "", &d), "soon", "want a duration such as 30s, 1h30m or 2d"},
		{PositiveDuration("d", "", &d), "soon", "want a duration such as 30s, 1h30m or 2d, more than 0"},
		{PositiveDuration("d", "", &d), "0s", "want more than 0"},
		{MaxWait("", &d), "soon", "want a duration such as 30s, 1h30m or 2d, more than 0, or forever"},
		{MaxWait("", &d), "-1s", "want more than 0, or forever"},
		{Whole("n", "", &n), "010", "want a whole number, at least 1"},
		{Whole("n", "", &n), "0", "want at least 1"},
	} {
		if err := row.flag.(*cli.GenericFlag).Value.Set(row.text); err == nil || err.Error() != row.err {
			t.Errorf("%q: %v, want %q", row.text, err, row.err)
		}
	}
	if d != 0 || n != 0 {
		t.Errorf("what could not be read was set: %v, %d", d, n)
	}
}
