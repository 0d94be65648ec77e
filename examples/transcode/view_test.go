package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestBars(t *testing.T) {
	phase := time.UnixMilli(1000)
	for _, c := range []struct {
		name  string
		times []time.Time
		now   int
		want  string
	}{
		{"nothing", nil, 1000, "     "},
		{"the last column is now", at(1000), 1099, "    ▁"},
		{"and moves on", at(1000), 1100, "   ▁ "},
		{"a bin's end belongs to the next", at(1000, 1099, 1100), 1150, "   ▂▁"},
		{"before the phase", at(950, 899), 1000, "  ▁▁ "},
		{"too old", at(0, 499, 500), 1000, "     "},
		{"too many", at(1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000), 1000, "    █"},
	} {
		if got := bars(c.times, phase, time.UnixMilli(int64(c.now)), 5); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestMeter(t *testing.T) {
	for n, want := range map[int]string{0: "░░░░", 1: "█░░░", 8: "██░░", 15: "████", 16: "████", 18: "████"} {
		if got := meter(n, 16, 4); got != want {
			t.Errorf("%d of 16: %q, want %q", n, got, want)
		}
	}
}

// testFrame is 3 s into a run, with more to show than fits.
func testFrame() frame {
	begun := time.UnixMilli(0)
	f := frame{begun: begun, now: begun.Add(3 * time.Second)}
	for _, t := range tenants {
		r := record{tenant: t, offers: at(0, 0, 0, 0, 2900), refusals: at(0), starts: at(20, 120, 220, 2920)}
		f.lanes = append(f.lanes, lane{record: r, waiting: t.policy.Depth, done: 3})
		f.starts = append(f.starts, r.starts...)
	}
	return f
}

// A line that wraps would upset the next picture's way up.
func TestPictureFits(t *testing.T) {
	lines := strings.Split(picture(testFrame(), strings.Repeat("long ", 40)), "\n")
	if len(lines) >= liveHeight {
		t.Errorf("%d lines, want less than %d", len(lines), liveHeight)
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > liveWidth {
			t.Errorf("%d characters, want at most %d: %s", n, liveWidth, line)
		}
	}
}

// Lines that stay go above the picture, and each picture over the last.
func TestLiveReplaces(t *testing.T) {
	var out bytes.Buffer
	v := &liveView{lineView: lineView{w: &out}}
	v.step("media", 1, 2, "files")
	v.step("media", 2, 2, "files")
	v.replace("", "a\nb\n")
	_, _ = v.Write([]byte("log\n"))
	v.end()
	v.replace("", "c\n")
	const up1, up2 = "\x1b[1A\r\x1b[J", "\x1b[2A\r\x1b[J"
	want := "  media       1 of 2 files\n" + up1 + "  media       2 files\n" + "a\nb\n" + up2 + "log\na\nb\n" + "c\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out)
	v.title(tenants)
	v.begin()
	f := testFrame()
	v.draw(f)
	v.draw(f) // nothing new
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	table := lines[len(lines)-5:]
	if want := "   1 s │   16/16      4       1      3 │   10/10      4       1      3 │      6"; table[2] != want {
		t.Errorf("%q, want %q", table[2], want)
	}
	if want := "   3 s │   16/16      1       0      1 │   10/10      1       0      1 │      2"; table[4] != want {
		t.Errorf("%q, want %q", table[4], want)
	}
	for _, line := range table {
		if n := utf8.RuneCountInString(line); n > 79 {
			t.Errorf("%d characters: %s", n, line)
		}
	}
}
