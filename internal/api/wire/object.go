// Package wire is what jobs and answers look like in JSON: the same in the HTTP API, in batch files and in what the
// programs print.
//
// What is read is read strictly: fields that are unknown, written twice, or written in another case are errors that
// name the field, as is anything after the object. Nothing is rounded, and no invalid UTF-8 is repaired.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jobshaper/jobshaper/shaper"
)

// Error says what is wrong with a JSON text. It wraps shaper.ErrInvalid.
type Error struct {
	Field   string // empty where the text as a whole is wrong
	Problem string // a whole sentence that names the field
}

func (e *Error) Error() string { return e.Problem }

func (e *Error) Unwrap() error { return shaper.ErrInvalid }

// field is a key that an object may have, and what reads its value.
type field struct {
	name string
	read func(json.RawMessage) error
}

// readObject reads one JSON object whose fields are known.
func readObject(b []byte, fields []field) error {
	if !utf8.Valid(b) {
		return &Error{Problem: "not valid JSON: invalid UTF-8"}
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil {
		return syntax(err)
	} else if t != json.Delim('{') {
		return &Error{Problem: "want a JSON object, such as " + example}
	}
	seen := make([]bool, len(fields))
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return syntax(err)
		}
		name, _ := t.(string) // a key is a string, or Token fails
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		switch {
		case i < 0:
			return &Error{Field: clip(name), Problem: fmt.Sprintf("unknown field %q: want %s", clip(name), names(fields))}
		case seen[i]:
			return &Error{Field: name, Problem: fmt.Sprintf("field %q is written twice: want it once", name)}
		}
		seen[i] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return syntax(err)
		}
		if err := fields[i].read(value); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return syntax(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &Error{Problem: "something follows the JSON object: want one object"}
	}
	return nil
}

const example = `{"type":"video:transcode","payload":{"input":"a.mov"}}`

func syntax(err error) error {
	text := strings.TrimPrefix(err.Error(), "json: ")
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		text = "it ends too early"
	}
	return &Error{Problem: "not valid JSON: " + text + ": want an object, such as " + example}
}

// scalar reads a value of one JSON type into p; want says which, for the message.
func scalar[T any](name, want string, p *T) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		if string(raw) == "null" || json.Unmarshal(raw, p) != nil {
			return &Error{Field: name, Problem: fmt.Sprintf("%s %s: want %s", name, clip(string(raw)), want)}
		}
		return nil
	}
}

func names(fields []field) string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = f.name
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// clip shortens a value for a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}
