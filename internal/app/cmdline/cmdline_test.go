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
	var b shaper.Backoff
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
		{Backoff("b", "", &b), "1s..5m", true},
		{Backoff("b", "", &b), "1s", false},
		{Time("at", "", &at), "2030-01-31T12:00:00Z", true},
		{Time("at", "", &at), "tomorrow", false},
	} {
		set(row.flag.(*cli.GenericFlag).Value, row.text, row.good)
	}
	if wait != -1 || n != 7 || b.Max != 5*time.Minute || at.Year() != 2030 || r.Events != 1 {
		t.Errorf("%v %v %v %v %v", wait, n, b, at, r)
	}
}
