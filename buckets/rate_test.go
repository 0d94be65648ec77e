package buckets

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRate(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Rate
		out  string // as String writes it
	}{
		{"10/s", Rate{10, time.Second}, "10/s"},
		{"600/m", Rate{600, time.Minute}, "600/m"}, // not 10/s: the fraction stays as given
		{"7/s", Rate{7, time.Second}, "7/s"},
		{"1/90s", Rate{1, 90 * time.Second}, "1/90s"},
		{"1000/d", Rate{1000, 24 * time.Hour}, "1000/d"},
		{"3/333333us", Rate{3, 333333 * time.Microsecond}, "3/333333us"},
		{"3/333333µs", Rate{3, 333333 * time.Microsecond}, "3/333333us"},
		{"1/ms", Rate{1, time.Millisecond}, "1/1ms"},
		{"1/1.5d", Rate{1, 36 * time.Hour}, "1/36h"},
		{"1/1d12h", Rate{1, 36 * time.Hour}, "1/36h"},
		{" 5 / 2m ", Rate{5, 2 * time.Minute}, "5/2m"},
		{"1/.5s", Rate{1, 500 * time.Millisecond}, "1/500ms"},
		{"1000000000/us", Rate{MaxEvents, time.Microsecond}, "1000000000/1us"},
		{"1/366d", Rate{1, MaxPeriod}, "1/366d"},
	} {
		got, err := ParseRate(tc.in)
		if err != nil || got != tc.want || got.String() != tc.out {
			t.Errorf("ParseRate(%q) = %+v %q, %v; want %+v %q", tc.in, got, got, err, tc.want, tc.out)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	for in, says := range map[string]string{
		"":                       "want events per duration",
		"10":                     "want events per duration",
		"/s":                     "not a whole number",
		"1.5/s":                  "not a whole number",
		"NaN/s":                  "not a whole number",
		"Inf/s":                  "not a whole number",
		"1e3/s":                  "not a whole number",
		"99999999999999999999/s": "not a whole number",
		"0/s":                    "want at least 1",
		"-1/s":                   "want at least 1",
		"1000000001/s":           "want at most 1000000000",
		"1/0s":                   "want at least 1µs",
		"1/-1s":                  "want at least 1µs",
		"1/999ns":                "want at least 1µs",
		"1/1500ns":               "whole microseconds", // never rounded
		"1/367d":                 "want at most",
		"1/":                     "is not a duration",
		"1/s/2":                  "is not a duration",
		"1/fortnight":            "is not a duration",
		"1/NaNs":                 "is not a duration",
		"1/1e9d":                 "is not a duration",
		"1/0x1d":                 "is not a duration",
		"1/10":                   "is not a duration",
	} {
		r, err := ParseRate(in)
		if !errors.Is(err, ErrRate) || r != (Rate{}) || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseRate(%q) = %+v, %v; want ErrRate that says %q", in, r, err, says)
		}
	}
}

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for in, want := range map[string]time.Duration{
		"90s":       90 * time.Second,
		"1h30m":     90 * time.Minute,
		"1d":        day,
		"-1d":       -day,
		"+2d":       2 * day,
		"1.5d":      36 * time.Hour,
		".5d":       12 * time.Hour,
		"1d12h":     36 * time.Hour,
		"-1d12h":    -36 * time.Hour, // the sign is for the whole
		"-0.5d1h":   -13 * time.Hour,
		"106751d":   106751 * day, // nearly all that 64 bits hold
		"-106751d":  -106751 * day,
		"106751d1h": 106751*day + time.Hour,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "d", "1", "bad", "--1d", "1dd", "1d-1h", "1d+1h", "1d1", "1h1d", " 1d", "1_0d", "1/2d", "0x10d", "0b1d", "0o7d", "1..5d", "Infd", "NaNd",
		"1e3d", "1e999999999d", // must not take minutes either
		"106752d", "106751d24h", "-106751d24h", "99999999999999999999d", strings.Repeat("9", 100_000) + "d",
		"0.000000000000000001d", // less than a nanosecond
	} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%.40q) = %v, want an error", in, got)
		}
	}
}

func TestRateText(t *testing.T) {
	type config struct {
		Rate Rate `json:"rate"`
	}
	for _, in := range []string{`{"rate":"7/s"}`, `{"rate":"1/90s"}`, `{"rate":""}`} {
		var c config
		if err := json.Unmarshal([]byte(in), &c); err != nil {
			t.Fatal(err)
		}
		if out, err := json.Marshal(c); err != nil || string(out) != in {
			t.Errorf("%s became %s, %v", in, out, err)
		}
	}
	c := config{Rate: PerSecond(1)}
	if err := json.Unmarshal([]byte(`{"rate":"often"}`), &c); !errors.Is(err, ErrRate) || c.Rate != PerSecond(1) {
		t.Errorf("a bad text gave %v, and changed the rate to %v", err, c.Rate)
	}
}

func TestRateInterval(t *testing.T) {
	for _, tc := range []struct {
		r    Rate
		want time.Duration
	}{
		{PerSecond(10), 100 * time.Millisecond},
		{PerSecond(7), 142857143}, // rounded up
		{Rate{MaxEvents, time.Microsecond}, 1},
		{Rate{1, MaxPeriod}, MaxPeriod},
		{Rate{}, 0},
	} {
		if got := tc.r.Interval(); got != tc.want {
			t.Errorf("%+v: interval %v, want %v", tc.r, got, tc.want)
		}
	}
	if got := (Rate{}).Per(time.Second); got != 0 {
		t.Errorf("the zero rate has %v events a second", got)
	}
}

func TestRateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t)
		if got, err := ParseRate(r.String()); err != nil || got != r {
			t.Fatalf("%+v is written as %s and read as %+v, %v", r, r, got, err)
		}
	})
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"10/s", "7/1d12h", "1/90s", "3/333333us", "1/1e9d", "NaN/s", "-1/s", "1/0s", "1/.5µs", "+1/+1s", "1/-1d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil {
			if !errors.Is(err, ErrRate) || r != (Rate{}) {
				t.Fatalf("ParseRate(%q) = %+v, %v", s, r, err)
			}
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatalf("ParseRate(%q) gave %+v: %v", s, r, err)
		}
		if again, err := ParseRate(r.String()); err != nil || again != r {
			t.Fatalf("ParseRate(%q) gave %+v, written %s, read %+v, %v", s, r, r, again, err)
		}
	})
}
