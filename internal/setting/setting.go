// Package setting makes each field of a policy from one row of a table: its name in a config file,
// in JSON and as a flag, its fields in Redis, its kind and range, its default, and what it means.
// Code that reads, checks, writes or explains a policy goes through the table's values; only code
// that uses a field names it.
//
// The package that has the policy makes its table with Register; any other finds it with Of.
package setting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Row is a field of the policy S. Whole, Duration and the other kinds make it from
//
//   - its name in a config file and in JSON; a flag has dashes for its underscores
//   - its key in Redis; two words for a value that is kept in two fields
//   - its meaning, a line for people that leaves its range to Doc
//   - where it is in S
type Row[S any] struct {
	name, key, meaning string
	in                 func(*S) value
}

// Table is all the fields of the policy S, in the order in which people see them.
type Table[S any] []Row[S]

// tables holds the Table of each registered policy.
var tables = map[reflect.Type]any{}

// Register makes t known to Of. Call it while package variables are initialized.
func Register[S any](t Table[S]) Table[S] {
	tables[reflect.TypeFor[S]()] = t
	return t
}

// Of returns the fields of s, whose type has a registered table. Setting them sets those of s.
func Of[S any](s *S) []Value { return tables[reflect.TypeFor[S]()].(Table[S]).Of(s) }

// Find returns one field of s, as Of does.
func Find[S any](s *S, name string) (Value, bool) {
	for _, row := range tables[reflect.TypeFor[S]()].(Table[S]) {
		if row.name == name {
			return Value{row.name, row.key, row.meaning, row.in(s)}, true
		}
	}
	return Value{}, false
}

// Names returns the names of the fields of s.
func Names[S any](s *S) []string {
	table := tables[reflect.TypeFor[S]()].(Table[S])
	names := make([]string, len(table))
	for i, row := range table {
		names[i] = row.name
	}
	return names
}

// Of returns the fields of s. Setting them sets those of s.
func (t Table[S]) Of(s *S) []Value {
	values := make([]Value, len(t))
	for i, row := range t {
		values[i] = Value{row.name, row.key, row.meaning, row.in(s)}
	}
	return values
}

// Inherit sets every field of s that is not set to that of from.
func (t Table[S]) Inherit(s, from *S) {
	inherited := t.Of(from)
	for i, v := range t.Of(s) {
		if !v.IsSet() {
			v.copy(inherited[i].value)
		}
	}
}

// SetDefaults sets every field of s that is not set to its default, if it has one.
func (t Table[S]) SetDefaults(s *S) {
	for _, v := range t.Of(s) {
		if !v.IsSet() {
			v.setDefault()
		}
	}
}

// Kept returns the fields of s as Redis keeps them: key, value, … An empty value is not set.
func (t Table[S]) Kept(s *S) []string {
	var kept []string
	for _, v := range t.Of(s) {
		values := v.keep()
		for i, key := range strings.Fields(v.Key) {
			if v.IsSet() {
				kept = append(kept, key, values[i])
			} else {
				kept = append(kept, key, "")
			}
		}
	}
	return kept
}

// Recall sets the fields of s to what Redis keeps in h. What is malformed there is not set.
func (t Table[S]) Recall(s *S, h map[string]string) {
	for _, v := range t.Of(s) {
		var values [2]string
		for i, key := range strings.Fields(v.Key) {
			values[i] = h[key]
		}
		v.recall(values)
	}
}

// Value is a field of a given policy. Zero is "not set".
type Value struct {
	Name, Key, Meaning string
	value
}

// value is what differs from kind to kind.
type value interface {
	// Pointer is where the field is: an *int, *time.Duration and so on.
	Pointer() any
	IsSet() bool
	Unset()
	// Parse sets the field from text, as a config file and a flag have it. If text cannot be read
	// at all or is zero, it sets nothing and returns what would be right. It leaves the range to
	// Check.
	Parse(text string) (want string)
	// Check returns what would be right if the field is set and out of range.
	Check() (want string)
	// Text is what Parse reads.
	Text() string
	// Lua is an expression that tells a script whether v, which Redis keeps, can be read. It is empty
	// where that is a number.
	Lua() string
	// Range says what may be set: "1 to 1000". It is empty where Form says everything.
	Range() string
	// Default is the text of what applies where nothing is set, or "none"; empty where Range says
	// it.
	Default() string
	// Form is how to write a value in a flag's help, the placeholder in backquotes.
	Form() string

	copy(value)
	setDefault()
	keep() [2]string
	recall([2]string)
}

// Doc explains the field in a line: what it means, its range, its default.
func (v Value) Doc() string {
	doc := v.Meaning
	if r := v.Range(); r != "" {
		doc += ": " + r
	}
	if d := v.Default(); d != "" {
		doc += "; default " + d
	}
	return doc
}

// JSON returns the fields of s as an object: numbers, and text as in a config file.
func JSON[S any](s *S) ([]byte, error) {
	b := bytes.NewBufferString("{")
	for i, v := range Of(s) {
		var field any = v.Text()
		if n, ok := v.Pointer().(*int); ok {
			field = *n
		}
		text, err := json.Marshal(field)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", v.Name, err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, "%q:%s", v.Name, text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
