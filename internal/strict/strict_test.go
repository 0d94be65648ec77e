package strict

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestObject(t *testing.T) {
	deep := strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001)
	for _, row := range []struct {
		text string
		want string // the members that are read, or the error
	}{
		{`{}`, ""},
		{" {\n\"a\": 1 ,\"b\":[ 1 ]} \n", "a=1 b=[ 1 ]"},
		{"\ufeff{\"a\":1}", "a=1"},
		{`{"a":"\ud83d\ude00","\ud83d\ude00":0}`, `a="\ud83d\ude00" 😀=0`},
		{`{"a":"\\ud83d"}`, `a="\\ud83d"`},                          // a backslash and five letters
		{`{"a":{"x":1,"x":"\ud83d"}}`, `a={"x":1,"x":"\ud83d"}`},    // not read
		{`{"a":1,"A":2}`, "a=1 A=2"},                                // two names
		{`{"a":1,"b":2,"a":1}`, `"a" is written twice`},             // whatever stands between
		{`{"a":1,"\u0061":2}`, `"a" is written twice`},              // however it is written
		{`{"\ud83d":1}`, `a name in the object: the escape \ud83d`}, // which would be read as U+FFFD
		{`{"a":1}{}`, "something follows"},
		{`{"a":1} x`, "something follows"},
		{`{"a":1} ` + "\ufeff", "something follows"},
		{"\ufeff\ufeff{}", "byte order mark"},
		{`{"a":1,}`, "not valid JSON"},
		{`{"a" 1}`, "not valid JSON"},
		{`{"a":01}`, "not valid JSON"},
		{`{"a":1`, "ends too early"},
		{``, "ends too early"},
		{"\ufeff", "ends too early"},
		{`[]`, "want a JSON object"},
		{`null`, "want a JSON object"},
		{"{\"a\":\"\xff\"}", "invalid UTF-8"},
		{"{\"a\":\"\xed\xa0\xbd\"}", "invalid UTF-8"}, // a surrogate in three bytes
		{"\xff\xfe{\x00}\x00", "UTF-16"},
		{`{"a":` + deep + `}`, `"a" is nested too deeply`},
	} {
		var members []string
		err := Object([]byte(row.text), func(name string, value json.RawMessage) error {
			members = append(members, name+"="+string(value))
			return nil
		})
		got := strings.Join(members, " ")
		var wrong *Error
		if errors.As(err, &wrong) {
			if !strings.Contains(err.Error(), row.want) || row.want == "" {
				t.Errorf("%.40q: %v, want %q", row.text, err, row.want)
			}
		} else if err != nil || got != row.want {
			t.Errorf("%.40q: %q, %v, want %q", row.text, got, err, row.want)
		}
	}
	mine := errors.New("mine")
	if err := Object([]byte(`{"a":1,"a":2}`), func(string, json.RawMessage) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("the error of member became %v", err)
	}
}

func TestString(t *testing.T) {
	for value, want := range map[string]string{
		`"a"`: "a", `""`: "", `"\ud83d\ude00"`: "😀", `"\uD83D\uDE00x"`: "😀x", `"\\ud83d"`: `\ud83d`, `"\\\\\u0041"`: `\\A`,
		`"\ufffd"`: "\ufffd", `"\ufeffa"`: "\ufeffa", `"\u0000"`: "\x00",
	} {
		if got, err := String(json.RawMessage(value)); err != nil || got != want {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
	for _, value := range []string{`"a\ud83d"`, `"\ud83dx"`, `"\ud83d\n"`, `"\ud83d\u0041"`, `"\ude00"`, `"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`, `"\\\ud83d"`, `"\uDFFF"`} {
		var wrong *Error
		if got, err := String(json.RawMessage(value)); !errors.As(err, &wrong) || !strings.Contains(wrong.Problem, "half a character") {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
	for _, value := range []string{`null`, `1`, `{}`, `true`, ``} {
		if got, err := String(json.RawMessage(value)); !errors.Is(err, ErrKind) {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
}

func TestTextOffset(t *testing.T) {
	for text, want := range map[string]int{"\xff": 0, "ab\n\xffc": 3, "\ufffd\xff": 3, "\ufeffé\xc3": 5} {
		var wrong *Error
		if _, err := Text([]byte(text)); !errors.As(err, &wrong) || wrong.Offset != want {
			t.Errorf("%q: %v, want offset %d", text, err, want)
		}
	}
}

// What is accepted is what encoding/json reads, and a string that is read is written as it was.
func FuzzObject(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":"\ud83d"}`, `{"\udead":1}`, `{"a":{"b":1,"b":2}}`, "\ufeff{}", `{"a":"\ud83d\ude00\\u"}`, "\xff\xfe{", `{"a":-0,"b":1e999}`, `{"a":null}`, `{"a":"\\\\\ud800"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read := map[string]json.RawMessage{}
		err := Object([]byte(text), func(name string, value json.RawMessage) error {
			read[name] = value
			if s, err := String(value); err == nil {
				again, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				if same, err := String(again); err != nil || same != s {
					t.Fatalf("%q: %q became %q, %v", text, s, same, err)
				}
				if strings.Contains(s, "\ufffd") && !strings.Contains(string(value), "\ufffd") && !strings.Contains(strings.ToLower(string(value)), `\ufffd`) {
					t.Fatalf("%q: U+FFFD was made of %s", text, value)
				}
			}
			return nil
		})
		if err != nil {
			var wrong *Error
			if !errors.As(err, &wrong) || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		want := map[string]json.RawMessage{}
		if err := json.Unmarshal(TrimBOM([]byte(text)), &want); err != nil || len(want) != len(read) {
			t.Fatalf("%q: %d members, and encoding/json says %d, %v", text, len(read), len(want), err)
		}
	})
}
