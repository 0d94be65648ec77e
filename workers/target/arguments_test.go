package target

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jobshaper/jobshaper/shaper"
)

func TestExecArguments(t *testing.T) {
	const payload = `{"in": "a b.mp4", "n": 12345678901234567890.50, "on": true, "empty": "", "opt": "-x", "neg": -1,
		"sub": {"a": {"b-c": "deep"}}, "list": [1], "null": null, "nul": "a\u0000b", "job": "J", "payload": "P"}`
	for _, tc := range []struct {
		arg, want, err string
	}{
		{arg: "", want: ""},
		{arg: "plain", want: "plain"},
		{arg: "{payload.in}", want: "a b.mp4"},
		{arg: "{in}", want: "a b.mp4"}, // short for the same
		{arg: "x={n},{on};", want: "x=12345678901234567890.50,true;"},
		{arg: "{payload.sub.a.b-c}", want: "deep"},
		{arg: "{sub.a.b-c}", want: "deep"},
		{arg: "{empty}", want: ""},
		{arg: "{job.id}/{job.tenant}/{job.attempt}", want: "j-1/acme/3"},
		{arg: "{job}{payload}{payload.job}", want: "JPJ"}, // a lone name is always a field
		{arg: "{{in}}", want: "{in}"},
		{arg: "{{payload.in}} {in}", want: "{payload.in} a b.mp4"},
		{arg: "{{json .}} {} {a b} {3} {1,2} { in } {.x} {in", want: "{{json .}} {} {a b} {3} {1,2} { in } {.x} {in"},
		{arg: "${in}", want: "$a b.mp4"}, // no shell, so no variable

		{arg: "{opt}", err: `"opt"`},
		{arg: "{neg}", err: `"neg"`},
		{arg: "{empty}{opt}", err: `"empty"`}, // the first one is to blame: it let the other come first
		{arg: "{empty}-x", err: `"empty"`},
		{arg: "--file={opt}", want: "--file=-x"},
		{arg: "./{opt}", want: "./-x"},
		{arg: "{none}", err: `no field "none"`},
		{arg: "{in.deeper}", err: `no field "in.deeper"`},
		{arg: "{list.0}", err: `no field "list.0"`},
		{arg: "{IN}", err: `no field "IN"`},
		{arg: "{sub}", err: `"sub": want a string`},
		{arg: "{list}", err: `"list": want a string`},
		{arg: "{null}", err: `"null": want a string`},
		{arg: "x{nul}", err: `"nul" holds a NUL`},
	} {
		parsed, err := parseTemplate(tc.arg)
		if err != nil {
			t.Errorf("%q: %v", tc.arg, err)
			continue
		}
		got, err := expandAll([]template{parsed}, testInfo, []byte(payload))
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: error %v, want %s", tc.arg, err, tc.err)
			}
		} else if err != nil || got[0] != tc.want {
			t.Errorf("%q: got %q, %v; want %q", tc.arg, got, err, tc.want)
		}
	}
}

func TestExecPayloadMustBeAnObject(t *testing.T) {
	asks, _ := parseTemplate("{in}")
	fixed, _ := parseTemplate("{job.id}")
	for _, payload := range []string{"", "text", `"in"`, "[1]", "null", "1", `{"in": 1`, `{"in": 1} {}`, "{\"in\": \"\xff\"}"} {
		if got, err := expandAll([]template{asks}, testInfo, []byte(payload)); err == nil {
			t.Errorf("payload %q gave %q", payload, got)
		}
		if got, err := expandAll([]template{fixed}, testInfo, []byte(payload)); err != nil || got[0] != "j-1" {
			t.Errorf("payload %q, of no interest: got %q, %v", payload, got, err)
		}
	}
}

// A command is not told of a value that another reader of the same payload would not see.
func TestExecPayloadIsReadStrictly(t *testing.T) {
	for _, tc := range []struct{ arg, payload, want, err string }{
		{"{in}", `{"in":"a\ud83d"}`, "", `payload field "in": the escape \ud83d is half a character`},
		{"{in}", `{"in":"\ud83d\ude00"}`, "😀", ""},
		{"{in}", `{"in":"a","in":"b"}`, "", `payload field "in" is written twice`},
		{"{in}", `{"in":"a","\u0069n":"b"}`, "", `payload field "in" is written twice`},
		{"{in}", `{"in":"a","x":1,"x":2}`, "", `payload field "x" is written twice`},
		{"{sub.in}", `{"sub":{"in":"a","in":"b"}}`, "", `payload field "sub": "in" is written twice`},
		{"{sub.in}", `{"sub":{"in":"a","\ud83d":1}}`, "", `payload field "sub": a name in the object: the escape \ud83d`},
		{"{in}", `{"in":"a","\ud83d":1}`, "", `needs fields of the payload: a name in the object: the escape \ud83d`},
		{"{in}", `{"in":null}`, "", `"in": want a string, number or boolean`},
		{"{in}", `{"in":"a"} {}`, "", "which is not JSON"},
		{"{in}", `["in"]`, "", "needs fields of the payload: want a JSON object"},
		{"{in}", "{\"in\":\"\xff\"}", "", "needs fields of the payload: invalid UTF-8"},
		{"{in}", "\ufeff" + `{"in":"a"}`, "a", ""},
		{"{in}", `{"in":"\ufeffa"}`, "\ufeffa", ""},
		{"{in}", `{"in":1e2}`, "1e2", ""},
		{"{in}", `{"in":1.0}`, "1.0", ""},
		{"x={in}", `{"in":-0}`, "x=-0", ""},
		// What no argument asks for is the producer's own.
		{"{in}", `{"in":"a","other":{"x":"\ud83d","x":null}}`, "a", ""},
	} {
		parsed, err := parseTemplate(tc.arg)
		if err != nil {
			t.Fatal(err)
		}
		got, err := expandAll([]template{parsed}, testInfo, []byte(tc.payload))
		switch {
		case tc.err == "" && (err != nil || got[0] != tc.want):
			t.Errorf("%s of %s: %q, %v; want %q", tc.arg, tc.payload, got, err, tc.want)
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%s of %s: %q, %v; want %s", tc.arg, tc.payload, got, err, tc.err)
		}
	}
}

func TestExecMisspeltPlaceholder(t *testing.T) {
	for _, arg := range []string{"{payload.}", "{payload.a b}", "{payload.a", "x{job.name}", "{job.id.x}", "{job.}", "{in}{payload.é}"} {
		_, err := parseTemplate(arg)
		var fe *shaper.FieldError
		if !errors.As(err, &fe) || fe.Field != "target.exec" {
			t.Errorf("%q: got %v", arg, err)
		}
	}
}

// Whatever the payload, an argument stays one argument, and only the operator gives options.
func FuzzExecArguments(f *testing.F) {
	f.Add(`{"a": "; touch X"}`)
	f.Add(`{"a": "--output=X"}`)
	f.Add(`{"a": "\u0000", "b": {"c": "\n"}}`)
	f.Add(`{"a": "", "b": {"c": -1}}`)
	f.Add(`{"a": "\ud83d", "b": {"c": 1, "c": 2}}`)
	f.Add("\ufeff" + `{"a": "\ud83d\ude00", "b": {"c": 1e2}}`)
	var ts []template
	for _, arg := range []string{"cmd", "{a}", "{payload.b.c}{a}", "x={a}"} {
		parsed, err := parseTemplate(arg)
		if err != nil {
			f.Fatal(err)
		}
		ts = append(ts, parsed)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		args, err := expandAll(ts, testInfo, []byte(payload))
		if err != nil {
			return
		}
		if len(args) != 4 || args[0] != "cmd" || !strings.HasPrefix(args[3], "x=") ||
			strings.HasPrefix(args[1], "-") || strings.HasPrefix(args[2], "-") ||
			slices.ContainsFunc(args, func(s string) bool { return strings.ContainsRune(s, 0) || !utf8.ValidString(s) }) {
			t.Errorf("%q gave %q", payload, args)
		}
	})
}
