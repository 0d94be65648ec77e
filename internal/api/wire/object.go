// Package wire is what jobs and answers look like in JSON: the same in the HTTP API, in batch files
// and in what the programs print.
//
// Reading is strict, see package strict: fields that are unknown, written twice, written in another
// case or null are errors that name the field, and anything after the object is an error. Nothing
// is rounded, and no text is repaired.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/internal/strict"
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
	err := strict.Object(b, func(name string, value json.RawMessage) error {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			name = clip.Value(name)
			return &Error{Field: name, Problem: fmt.Sprintf("unknown field %q: want %s", name, names(fields))}
		}
		return fields[i].read(value)
	})
	var wrong *strict.Error
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Name == "":
		return &Error{Problem: wrong.Problem + ": want an object, such as " + example}
	}
	return &Error{Field: wrong.Name, Problem: "field " + wrong.Error()}
}

const example = `{"type":"video:transcode","payload":{"input":"a.mov"}}`

// wrongValue is the error for a field's value; want says what would be right. A cause that says
// more replaces both.
func wrongValue(name string, raw json.RawMessage, want string, cause error) error {
	if told := (*strict.Error)(nil); errors.As(cause, &told) {
		return &Error{Field: name, Problem: name + ": " + told.Error()}
	}
	if strict.IsNull(raw) {
		want += ", or leave it out"
	}
	return &Error{Field: name, Problem: fmt.Sprintf("%s %s: want %s", name, clip.Value(string(raw)), want)}
}

// text reads a value that is a string into p.
func text(name string, p *string) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		s, err := strict.String(raw)
		if err != nil {
			return wrongValue(name, raw, "a string", err)
		}
		*p = s
		return nil
	}
}

func names(fields []field) string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = f.name
	}
	return setting.Or(list)
}
