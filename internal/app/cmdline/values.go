package cmdline

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/shaper"
)

// value makes a flag of any kind out of how its value is read and written. It implements
// cli.Generic.
type value[T any] struct {
	v     *T
	parse func(string) (T, error)
	text  func(T) string
	want  string
}

func (v *value[T]) Set(s string) error {
	parsed, err := v.parse(strings.TrimSpace(s))
	if err != nil {
		return errors.New("want " + v.want)
	}
	*v.v = parsed
	return nil
}

func (v *value[T]) String() string {
	if v.v == nil {
		return ""
	}
	return v.text(*v.v)
}

// Duration is a flag for a duration, as Go writes it or in days: 500ms, 1h30m, 2d.
func Duration(name, usage string, p *time.Duration) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: &value[time.Duration]{p, buckets.ParseDuration, durationText,
		setting.WantDuration}}
}

// PositiveDuration is Duration for a value whose zero would mean "not given".
func PositiveDuration(name, usage string, p *time.Duration) cli.Flag {
	return flagOf(setting.Duration(name, "", usage, itself[time.Duration], 1, 1, math.MaxInt64, 0), p)
}

// WaitReplicas are flags for shaper.ClientConfig: how sure the store must be of a job. Like the
// flags that name the store, they take environment variables.
func WaitReplicas(o *shaper.ClientConfig) []cli.Flag {
	return cliutil.FromEnv(
		Whole("wait-replicas", "accept a job only once `N` replicas of the Redis have it too (default: 0)", &o.Replicas),
		PositiveDuration("wait-replicas-timeout", "how long the replicas may take: `DURATION` (default: 1s)", &o.ReplicaTimeout),
	)
}

// MaxWait is a flag for shaper.Spec.MaxWait: a duration, or "forever".
func MaxWait(usage string, p *time.Duration) cli.Flag {
	return flagOf(setting.DurationOrForever("max-wait", "", usage, itself[time.Duration], 1, 1, math.MaxInt64, 0), p)
}

// itself finds the field in a table that has only one.
func itself[T any](p *T) *T { return p }

func flagOf[T any](r setting.Row[T], p *T) cli.Flag {
	v := setting.Table[T]{r}.Of(p)[0]
	return &cli.GenericFlag{Name: v.Name, Usage: v.Meaning, Value: settingFlag{v}}
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// Rate is a flag for a rate, such as 10/s.
func Rate(name, usage string, p *buckets.Rate) cli.Flag {
	return flagOf(setting.Rate(name, "", usage, itself[buckets.Rate], buckets.Rate{}), p)
}

// Settings are flags for the fields of a policy. A value out of range is left to whatever
// checks the policy.
func Settings(fields []setting.Value) []cli.Flag {
	flags := make([]cli.Flag, len(fields))
	for i, v := range fields {
		flags[i] = &cli.GenericFlag{Name: strings.ReplaceAll(v.Name, "_", "-"), Usage: v.Meaning + ": " + v.Form(), Value: settingFlag{v}}
	}
	return flags
}

// settingFlag implements cli.Generic.
type settingFlag struct{ setting.Value }

func (f settingFlag) Set(s string) error {
	if want := f.Parse(strings.TrimSpace(s)); want != "" {
		return errors.New("want " + want)
	}
	return nil
}

func (f settingFlag) String() string {
	if !f.IsSet() {
		return ""
	}
	return f.Text()
}

// Time is a flag for an instant of RFC 3339.
func Time(name, usage string, p *time.Time) cli.Flag {
	text := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Format(time.RFC3339Nano)
	}
	return &cli.GenericFlag{Name: name, Usage: usage, Value: &value[time.Time]{p,
		func(s string) (time.Time, error) { return time.Parse(time.RFC3339, s) }, text,
		"a time of RFC 3339, such as 2030-01-31T12:00:00Z"}}
}

// Whole is a flag for a whole number of at least 1; zero means "not given".
func Whole(name, usage string, p *int) cli.Flag {
	return flagOf(setting.Whole(name, "", usage, itself[int], 1, math.MaxInt, 0), p)
}
