package queue

import (
	"fmt"
	"regexp"
	"strings"
)

// UnreadableError says that what Redis keeps of a downstream as a whole cannot be read by this
// version: either it has another schema, or one of its fields holds what no version writes. Until
// that field is set right (an operator's SetDownstream does, or applying a configuration, if it is
// one of the policy) or another version is used, every call on the downstream but these is refused,
// and changes nothing. It wraps ErrStore, and the error that the server replied with.
type UnreadableError struct {
	Downstream string
	Field      string // as Redis keeps it, see ADR 12; "schema" for the version of the state
	Value      string // the beginning of it
	Err        error  // what the server replied; nil if it was not asked
}

func (e *UnreadableError) Error() string {
	if e.Field == schemaField {
		return fmt.Sprintf("downstream %s was written by a Jobshaper of schema %q, and this one reads schema %s: upgrade it", e.Downstream, e.Value, schema)
	}
	return fmt.Sprintf("downstream %s is parked: its field %s holds %q, which cannot be read: set it right", e.Downstream, e.Field, e.Value)
}

func (e *UnreadableError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrStore}
	}
	return []error{ErrStore, e.Err}
}

const (
	schemaField = "schema"
	schema      = "1" // the major version. Twin: readable in lua/lib/base.lua
)

// unreadable is how the scripts say it: see lua/lib/base.lua. Servers add a place or a trace to it.
var unreadable = regexp.MustCompile(`(?s)UNREADABLE \[\[([^=]*)=(.*?)\]\]`)

// refused returns the *UnreadableError that a script's error stands for; nil if it is another one.
func (q Queue) refused(err error) error {
	if m := unreadable.FindStringSubmatch(err.Error()); m != nil {
		return &UnreadableError{q.Downstream, m[1], m[2], err}
	}
	return nil
}

// CheckSchema is readable of lua/lib/base.lua, for what is read without a script.
func (q Queue) CheckSchema(version string) error {
	if major, _, ok := strings.Cut(version, "."); version == "" || ok && major == schema {
		return nil
	}
	return &UnreadableError{Downstream: q.Downstream, Field: schemaField, Value: version}
}
