package wire

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/shaper"
)

func TestReadSpec(t *testing.T) {
	base := shaper.Spec{Tenant: "base", Type: "t", Delay: time.Minute, MaxWait: time.Hour, Headers: map[string]string{"a": "1"}}
	at := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		text   string
		change func(*shaper.Spec)
	}{
		{`{}`, func(*shaper.Spec) {}},
		{` {"tenant":"x","type":"y","id":"z"} `, func(s *shaper.Spec) { s.Tenant, s.Type, s.ID = "x", "y", "z" }},
		{`{"payload":"p"}`, func(s *shaper.Spec) { s.Payload = []byte("p") }},
		{`{"payload":""}`, func(s *shaper.Spec) { s.Payload = []byte{} }},
		{`{"payload":[1, {"b":  2.50}]}`, func(s *shaper.Spec) { s.Payload = []byte(`[1,{"b":2.50}]`) }},
		{`{"delay":"2d"}`, func(s *shaper.Spec) { s.Delay = 48 * time.Hour }},
		{`{"at":"2030-01-31T12:00:00Z"}`, func(s *shaper.Spec) { s.At, s.Delay = at, 0 }}, // one replaces the other
		{`{"timeout":"5s","max_attempts":3,"retention":"2h"}`, func(s *shaper.Spec) {
			s.Timeout, s.MaxAttempts, s.Retention = 5*time.Second, 3, 2*time.Hour
		}},
		{"\ufeff" + `{"id":"z"}`, func(s *shaper.Spec) { s.ID = "z" }},
		{`{"payload":"\ud83d\ude00\\ud83d"}`, func(s *shaper.Spec) { s.Payload = []byte(`😀\ud83d`) }},
		// A payload's JSON text is the producer's: it stays as it is, for its reader to judge.
		{`{"payload":{"a":1, "a":null,"b":"\ud83d","\udead":[1e2,-0,1.50,12345678901234567890,"\u0041\u2028"]}}`, func(s *shaper.Spec) {
			s.Payload = []byte(`{"a":1,"a":null,"b":"\ud83d","\udead":[1e2,-0,1.50,12345678901234567890,"\u0041\u2028"]}`)
		}},
		{`{"payload":null}`, func(s *shaper.Spec) { s.Payload = []byte("null") }},
		{`{"headers":{}}`, func(s *shaper.Spec) { s.Headers = map[string]string{} }},
		{`{"headers":{"a":"1","A":"2","\ud83d\ude00":""}}`, func(s *shaper.Spec) { s.Headers = map[string]string{"a": "1", "A": "2", "😀": ""} }},
		{`{"max_wait":"forever"}`, func(s *shaper.Spec) { s.MaxWait = -1 }},
		{`{"headers":{"b":"2"}}`, func(s *shaper.Spec) { s.Headers = map[string]string{"b": "2"} }}, // as a whole
	} {
		want := base
		row.change(&want)
		got, err := ReadSpec([]byte(row.text), base, true)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", row.text, got, err)
		}
	}
	if base.Headers["b"] != "" {
		t.Error("the base was changed")
	}
}

// A mistake is reported with its field, and nothing is repaired.
func TestReadSpecRefuses(t *testing.T) {
	deep := strings.Repeat(`[`, 10_001) + strings.Repeat(`]`, 10_001)
	for _, row := range []struct{ text, field, want string }{
		{`{"payload":"a\ud83d"}`, "payload", `payload: the escape \ud83d is half a character`},
		{`{"payload":"\ud83dx\ude00"}`, "payload", `half a character`},
		{`{"type":"\udc00"}`, "type", `type: the escape \udc00`},
		{`{"id":"\ud83d"}`, "id", `id: the escape`},
		{`{"tenant":"\ud83d"}`, "tenant", `tenant: the escape`},
		{`{"delay":"1s\ud83d"}`, "delay", `delay: the escape`},
		{`{"at":"\ud83d"}`, "at", `at: the escape`},
		{`{"max_wait":"\ud83d"}`, "max_wait", `max_wait: the escape`},
		{`{"headers":{"a":"\ud83d"}}`, "headers.a", `headers.a: the escape`},
		{`{"headers":{"\ud83d":"a"}}`, "headers", `headers: a name in the object: the escape`},
		{`{"\ud83d":1}`, "", `a name in the object: the escape`},
		{`{"type":"x","type":"x"}`, "type", `field "type" is written twice`},
		{`{"type":"x","\u0074ype":"y"}`, "type", `field "type" is written twice`},
		{`{"headers":{"a":"1","a":"2"}}`, "headers", `headers: "a" is written twice`},
		{`{"headers":{"a":"1"},"headers":{}}`, "headers", `field "headers" is written twice`},
		{`{"headers":{"a":null}}`, "headers.a", `headers.a null: want a string, or leave it out`},
		{`{"headers":{"a":1}}`, "headers.a", `headers.a 1: want a string`},
		{`{"headers":{"a":{}}}`, "headers.a", `want a string`},
		{`{"headers":["a"]}`, "headers", `want an object of strings`},
		{`{"headers":"a"}`, "headers", `want an object of strings`},
		{`{"headers":null}`, "headers", `headers null: want an object of strings, or leave it out`},
		{`{"type":null}`, "type", `type null: want a string, or leave it out`},
		{`{"tenant":null}`, "tenant", `tenant null: want a string, or leave it out`},
		{`{"id":null}`, "id", `id null: want a string, or leave it out`},
		{`{"delay":null}`, "delay", `or leave it out`},
		{`{"at":null}`, "at", `or leave it out`},
		{`{"timeout":null}`, "timeout", `or leave it out`},
		{`{"max_attempts":null}`, "max_attempts", `max_attempts null: want a whole number, 1 to 1000, or leave it out`},
		{`{"max_wait":null}`, "max_wait", `or leave it out`},
		{`{"retention":null}`, "retention", `or leave it out`},
		{`{"max_attempts":1e2}`, "max_attempts", `max_attempts 1e2: want a whole number, 1 to 1000`},
		{`{"max_attempts":3.0}`, "max_attempts", `max_attempts 3.0: want a whole number, 1 to 1000`},
		{`{"max_attempts":-0}`, "max_attempts", `want 1 to 1000`},
		{`{"max_attempts":"3"}`, "max_attempts", `want a whole number`},
		{`{"max_attempts":99999999999999999999}`, "max_attempts", `want 1 to 1000`},
		{`{"max_attempts":1001}`, "max_attempts", `max_attempts 1001: want 1 to 1000`},
		{`{"timeout":5}`, "timeout", `timeout 5: want a duration such as 30s, 1h30m or 2d, 1ms to 30d, as a string`},
		{`{"timeout":"5"}`, "timeout", `timeout "5": want a duration such as 30s, 1h30m or 2d, 1ms to 30d`},
		{`{"timeout":"0s"}`, "timeout", `timeout "0s": want 1ms to 30d`},
		{`{"timeout":"31d"}`, "timeout", `timeout "31d": want 1ms to 30d`},
		{`{"max_wait":"never"}`, "max_wait", `max_wait "never": want a duration such as 30s, 1h30m or 2d, 1ms to 366d, or forever`},
		{`{"max_wait":"-1s"}`, "max_wait", `max_wait "-1s": want 1ms to 366d, or forever`},
		{`{"delay":5}`, "delay", `delay 5: want a duration such as 30s, 1h30m or 2d, as a string`},
		{`{"payload":` + deep + `}`, "payload", `field "payload" is nested too deeply`},
		{`{"headers":` + deep + `}`, "headers", `field "headers" is nested too deeply`},
		{"{\"payload\":\"\xff\"}", "", `invalid UTF-8`},
		{"\xff\xfe{\x00}\x00", "", `UTF-16`},
		{`{}{}`, "", `something follows the JSON object`},
		{`{} null`, "", `something follows the JSON object`},
		{`{"type":"x"`, "", `ends too early`},
		{`{"id":"a",}`, "", `not valid JSON`},
		{`{"headers":{"a":"1",}}`, "", `not valid JSON`},
	} {
		_, err := ReadSpec([]byte(row.text), shaper.Spec{}, true)
		var told *Error
		var field *shaper.FieldError
		name := ""
		switch {
		case errors.As(err, &told):
			name = told.Field
		case errors.As(err, &field):
			name = field.Field
		default:
			t.Errorf("%.60s: %v, want an error", row.text, err)
			continue
		}
		if name != row.field || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%.60s: field %q, %v; want %q, %q", row.text, name, err, row.field, row.want)
		}
	}
}

// Whatever bytes come, reading neither panics nor changes its mind about what it accepted.
func FuzzReadSpec(f *testing.F) {
	for _, s := range []string{`{}`, `{"type":"x","payload":{"a":[1,2]},"delay":"1s"}`, `{"payload":"é"}`, `{"at":"2030-01-31T12:00:00Z"}`, `[`, "\xff",
		`{"payload":"a\ud83d"}`, `{"payload":"\ud83d\ude00"}`, `{"payload":{"a":1,"a":"\ud83d"}}`, `{"headers":{"a":"1","a":"2"}}`, `{"headers":{"\udead":null}}`,
		"\ufeff{}", `{"max_attempts":1e2}`, `{"max_attempts":-0}`, `{"delay":null}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadSpec([]byte(text), shaper.Spec{}, true)
		if err != nil {
			if !errors.Is(err, shaper.ErrInvalid) {
				t.Fatalf("%q: %v is not an ErrInvalid", text, err)
			}
			return
		}
		for _, word := range []string{s.Tenant, s.ID, s.Type} {
			if strings.Contains(word, "\ufffd") && !strings.Contains(text, "\ufffd") && !strings.Contains(strings.ToLower(text), `\ufffd`) {
				t.Fatalf("%q: %q was repaired", text, word)
			}
		}
		again, err := json.Marshal(string(s.Payload))
		if err != nil {
			t.Fatal(err)
		}
		s2, err := ReadSpec([]byte(`{"payload":`+string(again)+`}`), shaper.Spec{}, true)
		if err != nil || string(s2.Payload) != string(s.Payload) {
			t.Fatalf("%q: payload %q became %q, %v", text, s.Payload, s2.Payload, err)
		}
	})
}

func TestResult(t *testing.T) {
	r := NewResult(shaper.Result{ID: "a", Tenant: "t", Downstream: "d", Status: shaper.Refused, Reason: "full",
		State: shaper.StateRunning, Note: shaper.NotePaused,
		RetryAfter: 1200 * time.Microsecond, ETA: time.UnixMicro(1_700_000_000_000_001)})
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"a","tenant":"t","downstream":"d","status":"refused","reason":"full","state":"running","duplicate":false,"position":0,` +
		`"eta":"2023-11-14T22:13:20.000001Z","note":"paused","retry_after_ms":2}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	if r := NewResult(shaper.Result{RetryAfter: -1}); r.RetryAfterMS != -1 || r.ETA != nil {
		t.Errorf("never, and no time: %+v", r)
	}
}

func TestJobBytes(t *testing.T) {
	b, err := json.Marshal(NewJob(shaper.Job{ID: "a", State: shaper.StateDone, Payload: []byte("text"), Result: []byte{0xff, 0}}))
	if err != nil || !strings.Contains(string(b), `"payload":"text"`) || !strings.Contains(string(b), `"result_base64":"/wA="`) {
		t.Errorf("%s, %v", b, err)
	}
}
