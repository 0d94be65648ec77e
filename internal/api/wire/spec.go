package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/shaper"
)

// ReadSpec reads a job to offer, a JSON object with the fields type, payload, id, delay, at, timeout, max_attempts,
// max_wait, retention and headers; also tenant where withTenant. What it does not name is as in base.
//
// A payload that is a JSON string is that string's text; any other JSON value is its compact JSON text, so
// {"a": 1} becomes the eight bytes {"a":1} and a missing payload none. Durations are strings such as "1m30s" or
// "2d"; max_wait may be "forever"; at is RFC 3339.
func ReadSpec(b []byte, base shaper.Spec, withTenant bool) (shaper.Spec, error) {
	s := base
	delayed, timed := false, false
	fields := []field{
		{"type", scalar("type", "a string", &s.Type)},
		{"payload", func(raw json.RawMessage) error { return readPayload(raw, &s.Payload) }},
		{"id", scalar("id", "a string", &s.ID)},
		{"delay", func(raw json.RawMessage) error { delayed = true; return readDuration("delay", raw, &s.Delay) }},
		{"at", func(raw json.RawMessage) error { timed = true; return readTime(raw, &s.At) }},
		{"timeout", durationField("timeout", &s.Timeout)},
		{"max_attempts", func(raw json.RawMessage) error { return readAttempts(raw, &s.MaxAttempts) }},
		{"max_wait", func(raw json.RawMessage) error { return readMaxWait(raw, &s.MaxWait) }},
		{"retention", durationField("retention", &s.Retention)},
		{"headers", scalar("headers", "an object of strings", &s.Headers)},
	}
	if withTenant {
		fields = append([]field{{"tenant", scalar("tenant", "a string", &s.Tenant)}}, fields...)
	}
	s.Headers = nil // a map that is decoded into would be base's own
	if err := readObject(b, fields); err != nil {
		return shaper.Spec{}, err
	}
	if s.Headers == nil {
		s.Headers = base.Headers
	}
	switch { // one of them replaces the other of base
	case delayed && !timed:
		s.At = time.Time{}
	case timed && !delayed:
		s.Delay = 0
	}
	return s, nil
}

func readPayload(raw json.RawMessage, p *[]byte) error {
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return syntax(err)
		}
		*p = []byte(text)
		return nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return syntax(err)
	}
	*p = compact.Bytes()
	return nil
}

func durationField(name string, p *time.Duration) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		if err := readDuration(name, raw, p); err != nil {
			return err
		}
		if *p == 0 { // which would mean "not set"
			return &shaper.FieldError{Field: name, Value: "0", Want: "more than 0"}
		}
		return nil
	}
}

func readDuration(name string, raw json.RawMessage, p *time.Duration) error {
	var text string
	d, err := time.Duration(0), json.Unmarshal(raw, &text)
	if err == nil {
		d, err = buckets.ParseDuration(text)
	}
	if err != nil {
		return &Error{Field: name, Problem: fmt.Sprintf(`%s %s: want a duration as a string, such as "500ms", "1m30s" or "2d"`, name, clip(string(raw)))}
	}
	*p = d
	return nil
}

func readMaxWait(raw json.RawMessage, p *time.Duration) error {
	if string(raw) == `"forever"` {
		*p = -1
		return nil
	}
	if err := durationField("max_wait", p)(raw); err != nil {
		return err
	}
	if *p < 0 {
		return &shaper.FieldError{Field: "max_wait", Value: p.String(), Want: "1ms to 366d, or forever"}
	}
	return nil
}

func readAttempts(raw json.RawMessage, p *int) error {
	if err := scalar("max_attempts", "a whole number, 1 to 1000", p)(raw); err != nil {
		return err
	}
	if *p == 0 {
		return &shaper.FieldError{Field: "max_attempts", Value: "0", Want: "1 to 1000"}
	}
	return nil
}

func readTime(raw json.RawMessage, p *time.Time) error {
	var text string
	t, err := time.Time{}, json.Unmarshal(raw, &text)
	if err == nil {
		t, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return &Error{Field: "at", Problem: fmt.Sprintf(`at %s: want a time of RFC 3339, such as "2030-01-31T12:00:00Z"`, clip(string(raw)))}
	}
	*p = t
	return nil
}
