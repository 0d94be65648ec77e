// Package strict reads text and JSON that others wrote, and repairs nothing: what it accepts means
// the same to everybody else who reads it.
//
//   - Text is UTF-8. One byte order mark before it, as editors on Windows write it, is dropped.
//   - A name occurs once in an object. RFC 8259 only advises that, and readers differ in which of
//     two values they take.
//   - A string is made of characters. An escape such as \ud83d without its other half is not one;
//     encoding/json reads it as U+FFFD.
//   - A text is one value. Nothing follows it.
//
// What is not read (the values that Object hands on, until they are asked for) is only checked for
// its syntax.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jobshaper/jobshaper/internal/clip"
)

// Error says what is wrong with a text. It repeats no value from the text.
type Error struct {
	Name    string // of the member of an object that is to blame; empty if it is the text as a whole
	Problem string
	Offset  int // of the first byte that is to blame, if Text found it
}

func (e *Error) Error() string {
	if e.Name == "" {
		return e.Problem
	}
	return strconv.Quote(e.Name) + " " + e.Problem
}

// ErrKind says that a value is not of the kind that was asked for.
var ErrKind = errors.New("a value of another kind")

// bom is U+FEFF in UTF-8.
const bom = "\uFEFF"

// TrimBOM returns b without a byte order mark before it.
func TrimBOM(b []byte) []byte { return bytes.TrimPrefix(b, []byte(bom)) }

// Text returns b without its byte order mark, or an *Error if it is not UTF-8.
func Text(b []byte) ([]byte, error) {
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return nil, &Error{Problem: "the text is UTF-16: want UTF-8"}
	}
	if !utf8.Valid(b) {
		offset := 0
		for r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(b[offset:]) {
			offset += n
		}
		return nil, &Error{Problem: "invalid UTF-8: want UTF-8", Offset: offset}
	}
	return TrimBOM(b), nil
}

// Object reads a text that is one JSON object, and calls member with each name and the text of its
// value, in order. It returns an *Error, or the first error of member, which may have been called
// before.
func Object(b []byte, member func(name string, value json.RawMessage) error) error {
	text, err := Text(b)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil {
		return syntax(err)
	} else if t != json.Delim('{') {
		return &Error{Problem: "want a JSON object"}
	}
	seen := map[string]bool{}
	for dec.More() {
		before := dec.InputOffset()
		t, err := dec.Token()
		if err != nil {
			return syntax(err)
		}
		name, _ := t.(string) // a name is a string, or Token fails
		written := text[before:dec.InputOffset()]
		if half := halfEscape(written[bytes.IndexByte(written, '"'):]); half != "" {
			return &Error{Problem: "a name in the object: " + halfProblem(half)}
		}
		if seen[name] {
			return &Error{Name: clip.Value(name), Problem: "is written twice: want it once"}
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return inValue(name, err)
		}
		if err := member(name, value); err != nil {
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

// String reads the text of a JSON string. It returns ErrKind for another value, and an *Error for a
// string that is not text.
func String(value json.RawMessage) (string, error) {
	if len(value) == 0 || value[0] != '"' {
		return "", ErrKind
	}
	if half := halfEscape(value); half != "" {
		return "", &Error{Problem: halfProblem(half)}
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return "", syntax(err)
	}
	return s, nil
}

// IsNull reports whether a value is null, which is not a way to leave a field out.
func IsNull(value json.RawMessage) bool { return string(value) == "null" }

// halfEscape returns the first escape in a JSON string that is a surrogate without its other half;
// empty if there is none.
func halfEscape(literal []byte) string {
	unit := func(at int) uint64 { // the code unit that \uXXXX at that place stands for; 0 if it is not one
		if at+6 > len(literal) || literal[at] != '\\' || literal[at+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(literal[at+2:at+6]), 16, 16) // its syntax was checked
		return n
	}
	for at := 0; ; {
		next := bytes.IndexByte(literal[at:], '\\')
		if next < 0 {
			return ""
		}
		at += next
		switch first := unit(at); {
		case first < 0xD800 || first > 0xDFFF:
			at += 2 // past what is escaped; the digits of \uXXXX hold no backslash
		case first < 0xDC00 && unit(at+6)&^0x3FF == 0xDC00:
			at += 12
		default:
			return string(literal[at : at+6])
		}
	}
}

func halfProblem(escape string) string {
	return "the escape " + escape + " is half a character, a lone surrogate: want both halves, or the character itself"
}

func syntax(err error) error {
	text := strings.TrimPrefix(err.Error(), "json: ")
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		text = "it ends too early"
	case strings.Contains(text, "'\\ufeff'"), strings.Contains(text, "'ï'"):
		text += ": a byte order mark that is not at the start of the text"
	}
	return &Error{Problem: "not valid JSON: " + text}
}

// inValue is the error for a value whose syntax is wrong. The place of an ordinary mistake is
// seldom the name before it.
func inValue(name string, err error) error {
	if strings.Contains(err.Error(), "exceeded max depth") { // encoding/json has no error of its own for it
		return &Error{Name: clip.Value(name), Problem: "is nested too deeply: want less than 10000 levels"}
	}
	return syntax(err)
}
