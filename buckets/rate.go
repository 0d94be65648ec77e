package buckets

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Limits of a Rate. Within them an interval, in whole µs and a remainder in 1/Events µs,
// is two numbers far below 2^53, so that Go, Redis' Lua (doubles) and JSON agree.
const (
	MaxEvents = 1_000_000_000
	MaxPeriod = 366 * 24 * time.Hour
)

// ErrRate is wrapped by every error about an unusable rate.
var ErrRate = errors.New("invalid rate")

// Rate is an exact rate: Events per Period, for example 7 per second. It is kept
// as the fraction it was given as; 7/s is never turned into 142857 µs.
//
// Period is a whole number of microseconds. The zero Rate means "none given" and is
// not valid. Rates are plain values; compare them with ==.
type Rate struct {
	Events int64
	Period time.Duration
}

// PerSecond returns the rate of n events a second.
func PerSecond(n int64) Rate { return Rate{Events: n, Period: time.Second} }

// IsZero reports whether no rate was given.
func (r Rate) IsZero() bool { return r == Rate{} }

// Validate returns nil for a rate that can be kept exactly, and otherwise an
// error that wraps ErrRate and says what would be right.
func (r Rate) Validate() error {
	switch {
	case r.Events <= 0:
		return fmt.Errorf("%w: %d events: want at least 1 (to stop a queue, pause it)", ErrRate, r.Events)
	case r.Events > MaxEvents:
		return fmt.Errorf("%w: %d events: want at most %d", ErrRate, r.Events, int64(MaxEvents))
	case r.Period < time.Microsecond:
		return fmt.Errorf("%w: a period of %v: want at least 1µs", ErrRate, r.Period)
	case r.Period > MaxPeriod:
		return fmt.Errorf("%w: a period of %v: want at most %v", ErrRate, r.Period, MaxPeriod)
	case r.Period%time.Microsecond != 0:
		return fmt.Errorf("%w: a period of %v: want whole microseconds", ErrRate, r.Period)
	}
	return nil
}

// periodMicros returns the period in microseconds.
func (r Rate) periodMicros() int64 { return int64(r.Period / time.Microsecond) }

// Interval returns Period/Events, the time between two departures, rounded up to
// the nanosecond. It is for people and timers; slots are computed from the fraction.
func (r Rate) Interval() time.Duration {
	if r.Events <= 0 {
		return 0
	}
	return time.Duration((int64(r.Period) + r.Events - 1) / r.Events)
}

// Per returns the number of events per unit as a float, for display only; 0 for the
// zero Rate.
func (r Rate) Per(unit time.Duration) float64 {
	if r.Period <= 0 {
		return 0
	}
	return float64(r.Events) * float64(unit) / float64(r.Period)
}

// String formats the rate as ParseRate reads it, with a unit where one fits: "10/s", "1/90s".
func (r Rate) String() string {
	switch r.Period {
	case time.Second:
		return fmt.Sprintf("%d/s", r.Events)
	case time.Minute:
		return fmt.Sprintf("%d/m", r.Events)
	case time.Hour:
		return fmt.Sprintf("%d/h", r.Events)
	case 24 * time.Hour:
		return fmt.Sprintf("%d/d", r.Events)
	}
	for _, u := range []struct {
		d time.Duration
		s string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if r.Period%u.d == 0 {
			return fmt.Sprintf("%d/%d%s", r.Events, r.Period/u.d, u.s)
		}
	}
	return fmt.Sprintf("%d/%dus", r.Events, r.periodMicros())
}

// ParseRate reads events per duration: "10/s", "600/m", "7/s", "1/90s", "1000/d",
// "3/333333us". The duration is a unit or a number with a unit, as ParseDuration reads it.
func ParseRate(s string) (Rate, error) {
	num, per, ok := strings.Cut(strings.TrimSpace(s), "/")
	if !ok {
		return Rate{}, fmt.Errorf("%w: %q: want events per duration, such as 10/s, 600/m or 1/90s", ErrRate, s)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(num), 10, 64)
	if err != nil {
		return Rate{}, fmt.Errorf("%w: %q: %q is not a whole number of events", ErrRate, s, num)
	}
	per = strings.TrimSpace(per)
	if per != "" && (per[0] < '0' || per[0] > '9') && per[0] != '.' && per[0] != '-' && per[0] != '+' {
		per = "1" + per
	}
	d, err := ParseDuration(per)
	if err != nil {
		return Rate{}, fmt.Errorf("%w: %q: %q is not a duration: want s, m, h, d or a number with a unit, such as 90s", ErrRate, s, per)
	}
	r := Rate{Events: n, Period: d}
	if err := r.Validate(); err != nil {
		return Rate{}, fmt.Errorf("%q: %w", s, err)
	}
	return r, nil
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) {
	if r.IsZero() {
		return nil, nil
	}
	return []byte(r.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*r = Rate{}
		return nil
	}
	v, err := ParseRate(string(b))
	if err != nil {
		return err
	}
	*r = v
	return nil
}

// ParseDuration reads a duration as time.ParseDuration does, and days besides:
// "1d", "1.5d", "1d12h". Days come first and are 24 hours.
func ParseDuration(s string) (time.Duration, error) {
	days, rest, ok := strings.Cut(s, "d")
	if !ok {
		return time.ParseDuration(s)
	}
	bad := fmt.Errorf("invalid duration %q: want a number with a unit, such as 90s, 1d or 1d12h", s)
	negative := strings.HasPrefix(days, "-")
	days = strings.TrimLeft(days, "+-")
	// Decimal digits only, and not too many: big.Rat would take 0x1p-2, and spend
	// minutes on 1e999999999.
	if len(days) > maxDayDigits || len(s)-len(days)-len(rest) > 2 || strings.Trim(days, "0123456789.") != "" {
		return 0, bad
	}
	f, good := new(big.Rat).SetString(days)
	if !good {
		return 0, bad
	}
	f.Mul(f, new(big.Rat).SetInt64(int64(24*time.Hour)))
	if !f.IsInt() || !f.Num().IsInt64() {
		return 0, bad
	}
	d := time.Duration(f.Num().Int64())
	if rest != "" {
		r, err := time.ParseDuration(rest)
		if err != nil || rest[0] == '-' || rest[0] == '+' || d > math.MaxInt64-r {
			return 0, bad
		}
		d += r
	}
	if negative {
		d = -d
	}
	return d, nil
}

// maxDayDigits is enough for every number of days that a time.Duration can hold.
const maxDayDigits = 32
