package queue

import (
	"strconv"
	"time"
)

// Reply reads the fields of a script's reply in order. A field that is missing or of another kind
// reads as zero: what comes from Redis is not trusted to be well formed.
type Reply struct {
	Fields []any
	i      int // of the next field
}

// ReplyOf reads v, a reply or a part of one.
func ReplyOf(v any) *Reply {
	fields, _ := v.([]any)
	return &Reply{Fields: fields}
}

func (r *Reply) More() bool { return r.i < len(r.Fields) }

// Next returns the next field as it is; nil if there is none.
func (r *Reply) Next() any {
	if !r.More() {
		return nil
	}
	r.i++
	return r.Fields[r.i-1]
}

// Str reads a text, or a number as text.
func (r *Reply) Str() string {
	switch v := r.Next().(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

// Int reads a whole number, or a text that is one.
func (r *Reply) Int() int64 {
	switch v := r.Next().(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

func (r *Reply) Micros() time.Duration { return time.Duration(r.Int()) * time.Microsecond }

// Score reads the score of a sorted set, µs since the epoch; the zero time where there is none.
func (r *Reply) Score() time.Time {
	us, _ := strconv.ParseFloat(r.Str(), 64)
	return Instant(int64(us))
}

// Instant reads µs since the epoch; 0 is the zero time.
func (r *Reply) Instant() time.Time { return Instant(r.Int()) }

// Instant returns µs since the epoch as a time; 0 is the zero time.
func Instant(us int64) time.Time {
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// Micros formats a duration as scripts take it: whole µs.
func Micros(d time.Duration) string { return strconv.FormatInt(int64(d/time.Microsecond), 10) }

// Flag returns a bool as scripts take it: 1 or 0.
func Flag(is bool) int {
	if is {
		return 1
	}
	return 0
}
