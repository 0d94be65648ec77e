package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/internal/strict"
	"github.com/jobshaper/jobshaper/shaper"
)

// ReadSpec reads a job to offer, a JSON object with the fields type, payload, id, delay, at,
// timeout, max_attempts, max_wait, retention and headers; also tenant where withTenant. What it
// does not name is as in base.
//
// A payload that is a JSON string is that string's text; any other JSON value, null too, is its
// JSON text without the blanks between its parts, so {"a": 1} becomes the seven bytes {"a":1}. A
// missing payload is empty. That JSON text is not interpreted: 1e2, names that are written twice
// and escapes like \ud83d stay as they are. Durations are strings such as "1m30s" or "2d"; max_wait
// may be "forever"; at is RFC 3339; max_attempts is a whole number in digits. A byte order mark
// before the object is left out.
func ReadSpec(b []byte, base shaper.Spec, withTenant bool) (shaper.Spec, error) {
	s := base
	delayed, timed := false, false
	fields := []field{
		{"type", text("type", &s.Type)},
		{"payload", func(raw json.RawMessage) error { return readPayload(raw, &s.Payload) }},
		{"id", text("id", &s.ID)},
		{"delay", func(raw json.RawMessage) error { delayed = true; return readDuration("delay", raw, &s.Delay) }},
		{"at", func(raw json.RawMessage) error { timed = true; return readTime(raw, &s.At) }},
		{"headers", func(raw json.RawMessage) error { return readHeaders(raw, &s.Headers) }},
	}
	var own shaper.Policy // the fields that the job itself sets
	for _, v := range setting.Of(&own) {
		switch v.Name {
		case "timeout", "max_attempts", "max_wait", "retention":
			fields = append(fields, field{v.Name, func(raw json.RawMessage) error { return readSetting(v, raw) }})
		}
	}
	if withTenant {
		fields = append([]field{{"tenant", text("tenant", &s.Tenant)}}, fields...)
	}
	if err := readObject(b, fields); err != nil {
		return shaper.Spec{}, err
	}
	s.Timeout, s.Retention = cmp.Or(own.Timeout, s.Timeout), cmp.Or(own.Retention, s.Retention)
	s.MaxWait, s.MaxAttempts = cmp.Or(own.MaxWait, s.MaxWait), cmp.Or(own.MaxAttempts, s.MaxAttempts)
	switch { // one of them replaces the other of base
	case delayed && !timed:
		s.At = time.Time{}
	case timed && !delayed:
		s.Delay = 0
	}
	return s, nil
}

func readPayload(raw json.RawMessage, p *[]byte) error {
	text, err := strict.String(raw)
	if err == nil {
		*p = []byte(text)
		return nil
	}
	var compact bytes.Buffer
	if !errors.Is(err, strict.ErrKind) {
		return wrongValue("payload", raw, "", err)
	}
	if err := json.Compact(&compact, raw); err != nil {
		return wrongValue("payload", raw, "any JSON value", err)
	}
	*p = compact.Bytes()
	return nil
}

func readHeaders(raw json.RawMessage, p *map[string]string) error {
	const want = "an object of strings"
	if raw[0] != '{' {
		return wrongValue("headers", raw, want, nil)
	}
	headers := map[string]string{}
	err := strict.Object(raw, func(name string, value json.RawMessage) error {
		text, err := strict.String(value)
		if err != nil {
			return wrongValue("headers."+clip.Value(name), value, "a string", err)
		}
		headers[name] = text
		return nil
	})
	if told := (*strict.Error)(nil); errors.As(err, &told) {
		return wrongValue("headers", raw, want, err)
	}
	*p = headers
	return err
}

// readSetting reads a field of a policy, as a config file has it: numbers as numbers, all else as
// strings.
func readSetting(v setting.Value, raw json.RawMessage) error {
	text, err := string(raw), error(nil) // 1e2 and 1.0 are numbers that a reader of JSON may have rounded
	if _, number := v.Pointer().(*int); !number {
		text, err = strict.String(raw)
	}
	want := v.Parse(text)
	switch {
	case err != nil:
		want += ", as a string"
	case want == "":
		want = v.Check()
	}
	if want != "" {
		return wrongValue(v.Name, raw, want, err)
	}
	return nil
}

func readDuration(name string, raw json.RawMessage, p *time.Duration) error {
	d := time.Duration(0)
	text, err := strict.String(raw)
	if err == nil {
		d, err = buckets.ParseDuration(text)
	}
	if err != nil {
		return wrongValue(name, raw, setting.WantDuration+", as a string", err)
	}
	*p = d
	return nil
}

func readTime(raw json.RawMessage, p *time.Time) error {
	t := time.Time{}
	text, err := strict.String(raw)
	if err == nil {
		t, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return wrongValue("at", raw, `a time of RFC 3339, such as "2030-01-31T12:00:00Z"`, err)
	}
	*p = t
	return nil
}
