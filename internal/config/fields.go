package config

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/shaper"
)

// section makes the fields of a struct that can validate itself. Each field is checked as soon
// as it is read, so that the error stands at its place, and is unset again where it is wrong.
//
// In those structs zero means "not set" and validates. A zero that is written is therefore checked
// as another value that is wrong for the same reason.
type section struct {
	*decoder
	validate func() error
}

// check reports at n what validate says.
func (s section) check(n node) bool {
	err := s.validate()
	if err != nil {
		s.wrong(n, wanted(err))
	}
	return err == nil
}

// wanted returns what would be right, after a validation that failed.
func wanted(err error) string {
	var f *shaper.FieldError
	if errors.As(err, &f) {
		return f.Want
	}
	return err.Error()
}

// wholeRE is stricter than YAML, where 010 is 8 and 1_0 is 10.
var wholeRE = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// whole reads a whole number into p.
func (s section) whole(key string, p *int) field {
	return field{key, func(n node) { s.readWhole(n, p, -1) }}
}

// wholeOrZero is whole for a field where a written zero means what its absence does.
func (s section) wholeOrZero(key string, p *int) field {
	return field{key, func(n node) { s.readWhole(n, p, 0) }}
}

func (s section) readWhole(n node, p *int, zero int) {
	text, _ := scalar(n.Node)
	i, err := strconv.Atoi(text)
	switch {
	case !wholeRE.MatchString(text):
		*p = -1
		s.wrong(n, "a whole number, "+wanted(s.validate()))
		*p = 0
		return
	case err != nil || i < 0: // beyond int, or below every range
		*p = -1
	case i == 0:
		*p = zero
	default:
		*p = i
	}
	if !s.check(n) {
		*p = 0
	}
}

// duration reads a duration into p.
func (s section) duration(key string, p *time.Duration) field {
	return field{key, func(n node) { s.readDuration(n, p) }}
}

func (s section) readDuration(n node, p *time.Duration) {
	text, _ := scalar(n.Node)
	v, err := buckets.ParseDuration(text)
	*p = v
	switch {
	case err != nil:
		*p = -1
		s.wrong(n, "a duration such as 30s, 1h30m or 2d, "+wanted(s.validate()))
		*p = 0
		return
	case v == 0:
		*p = -1
	}
	if !s.check(n) {
		*p = 0
	}
}

// rate reads a rate into p.
func (d *decoder) rate(key string, p *buckets.Rate) field {
	return field{key, func(n node) {
		text, ok := d.text(n, "events per duration, such as 10/s, 600/m or 1/90s")
		if !ok {
			return
		}
		v, err := buckets.ParseRate(clip(text))
		if err != nil {
			// The message quotes the value; that it is about a rate, the path says.
			d.fail(n, strings.Replace(err.Error(), buckets.ErrRate.Error()+": ", "", 1))
			return
		}
		*p = v
	}}
}

// choice reads one of a few words into p.
func choice[T ~string](s section, key string, p *T) field {
	return field{key, func(n node) {
		text, _ := scalar(n.Node)
		*p = T(text)
		if text == "" {
			*p = "nothing"
		}
		if !s.check(n) {
			*p = ""
		}
	}}
}

// backoff reads MIN..MAX into p.
func (s section) backoff(key string, p *shaper.Backoff) field {
	return field{key, func(n node) {
		text, _ := scalar(n.Node)
		from, to, _ := strings.Cut(text, "..")
		lo, err1 := buckets.ParseDuration(from)
		hi, err2 := buckets.ParseDuration(to)
		*p = shaper.Backoff{Min: lo, Max: hi}
		if err1 != nil || err2 != nil || p.IsZero() {
			p.Min = -1
		}
		if !s.check(n) {
			*p = shaper.Backoff{}
		}
	}}
}

// maxWait reads a duration, or "forever", which a tenant needs to undo its downstream's default.
func (s section) maxWait(key string, p *time.Duration) field {
	return field{key, func(n node) {
		text, _ := scalar(n.Node)
		if text == "forever" {
			*p = -1
			return
		}
		v, err := buckets.ParseDuration(text)
		*p = v
		if err != nil || v <= 0 {
			*p = 1 // below the least; a negative one would mean for ever
		}
		if err := s.validate(); err != nil {
			s.wrong(n, wanted(err)+", or forever")
			*p = 0
		}
	}}
}
