package target

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jobshaper/jobshaper/internal/strict"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// template is one argument of a command: literal text and placeholders in turn.
type template []piece

// piece is literal text, or a placeholder where field is set.
type piece struct {
	text  string
	field []string // the path to a field of the payload, or {"job", …}
	ofJob bool
}

// placeholderRE matches a placeholder, in doubled braces (which make it literal text) or single
// ones.
var placeholderRE = func() *regexp.Regexp {
	const name = `([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)`
	return regexp.MustCompile(`\{\{` + name + `\}\}|\{` + name + `\}`)
}()

// parseTemplate reads one argument. The placeholders are {payload.FIELD}, {FIELD} for short, and
// {job.id}, {job.tenant}, {job.attempt}; FIELD is a name, or several with dots between. {{NAME}} is
// the text {NAME}. Braces around anything else, such as {}, {a b} or {3}, are text.
func parseTemplate(arg string) (template, error) {
	var t template
	literal := func(s string) error {
		// A slip in a placeholder must not reach the command as text.
		if strings.Contains(s, "{payload.") || strings.Contains(s, "{job.") {
			return badArg(arg, "placeholders like {payload.FIELD}, of letters, digits, '_', '-' and dots")
		}
		t = append(t, piece{text: s})
		return nil
	}
	at := 0
	for _, m := range placeholderRE.FindAllStringSubmatchIndex(arg, -1) {
		if m[0] > at {
			if err := literal(arg[at:m[0]]); err != nil {
				return nil, err
			}
		}
		at = m[1]
		if m[2] >= 0 {
			t = append(t, piece{text: "{" + arg[m[2]:m[3]] + "}"})
			continue
		}
		p := piece{field: strings.Split(arg[m[4]:m[5]], ".")}
		if len(p.field) > 1 {
			switch p.field[0] {
			case "payload":
				p.field = p.field[1:]
			case "job":
				p.ofJob = true
				if name := arg[m[4]:m[5]]; name != "job.id" && name != "job.tenant" && name != "job.attempt" {
					return nil, badArg(arg, "{job.id}, {job.tenant} or {job.attempt}")
				}
			}
		}
		t = append(t, p)
	}
	if at < len(arg) || arg == "" {
		if err := literal(arg[at:]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func badArg(arg, want string) error {
	return &shaper.FieldError{Field: "target.exec", Value: cutHead(arg, 80), Want: want}
}

// fixed reports whether every job gets the same argument.
func (t template) fixed() bool {
	for _, p := range t {
		if p.field != nil {
			return false
		}
	}
	return true
}

// expand returns the argument for one job; lookup finds a field of its payload. An argument that
// does not start with text from the configuration must not turn out to be an option: only the
// operator gives those.
func (t template) expand(info workers.Info, lookup func(path []string) (string, error)) (string, error) {
	var b strings.Builder
	for _, p := range t {
		s := p.text
		switch {
		case p.ofJob:
			s = jobField(info, p.field[1])
		case p.field != nil:
			var err error
			if s, err = lookup(p.field); err != nil {
				return "", err
			}
		}
		b.WriteString(s)
	}
	arg := b.String()
	if t[0].field != nil && strings.HasPrefix(arg, "-") {
		return "", fmt.Errorf("payload field %q: a value that begins with '-' would be read as an option",
			strings.Join(t[0].field, "."))
	}
	return arg, nil
}

func jobField(info workers.Info, name string) string {
	switch name {
	case "id":
		return info.ID
	case "tenant":
		return info.Tenant
	default:
		return strconv.Itoa(info.Attempt)
	}
}

// expandAll returns the arguments for one job. The payload is parsed only if one of them asks for a
// field. Errors name the field, never its value: payloads stay out of logs.
func expandAll(ts []template, info workers.Info, payload []byte) ([]string, error) {
	var fields object
	lookup := func(path []string) (string, error) {
		if fields == nil {
			var err error
			if fields, err = readFields(payload); err != nil {
				return "", err
			}
		}
		return fields.lookup(path)
	}
	args := make([]string, len(ts))
	for i, t := range ts {
		var err error
		if args[i], err = t.expand(info, lookup); err != nil {
			return nil, err
		}
	}
	return args, nil
}

// object is a JSON object, with its values as they are written.
type object map[string]json.RawMessage

func readObject(text []byte) (object, error) {
	fields := object{}
	err := strict.Object(text, func(name string, value json.RawMessage) error {
		fields[name] = value
		return nil
	})
	return fields, err
}

// readFields reads a payload that must be one JSON object. Objects in it are read when one of their
// fields is asked for.
func readFields(payload []byte) (object, error) {
	fields, err := readObject(payload)
	if told := (*strict.Error)(nil); errors.As(err, &told) && told.Name != "" {
		return nil, fmt.Errorf("payload field %w", told)
	}
	switch {
	case err == nil:
		return fields, nil
	case !json.Valid(strict.TrimBOM(payload)):
		return nil, errors.New("the command needs fields of the payload, which is not JSON")
	}
	return nil, fmt.Errorf("the command needs fields of the payload: %w", err)
}

// lookup walks path and returns the text, number or boolean at its end, a number as it is written.
func (o object) lookup(path []string) (string, error) {
	name := strings.Join(path, ".")
	for i, key := range path {
		value, ok := o[key]
		last := i == len(path)-1
		switch {
		case !ok, !last && value[0] != '{':
			return "", fmt.Errorf("payload has no field %q", name)
		case last:
			return argument(name, value)
		}
		var err error
		if o, err = readObject(value); err != nil {
			return "", fmt.Errorf("payload field %q: %w", strings.Join(path[:i+1], "."), err)
		}
	}
	return "", errors.New("a placeholder without a name") // parseTemplate makes none
}

// argument is the value of the field called name, as a command gets it.
func argument(name string, value json.RawMessage) (string, error) {
	switch value[0] {
	case '"':
		text, err := strict.String(value)
		if err != nil {
			return "", fmt.Errorf("payload field %q: %w", name, err)
		}
		if strings.ContainsRune(text, 0) {
			return "", fmt.Errorf("payload field %q holds a NUL, which no argument can", name)
		}
		return text, nil
	case '{', '[', 'n':
		return "", fmt.Errorf("payload field %q: want a string, number or boolean", name)
	}
	return string(value), nil
}
