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

// Whatever bytes come, reading neither panics nor changes its mind about what it accepted.
func FuzzReadSpec(f *testing.F) {
	for _, s := range []string{`{}`, `{"type":"x","payload":{"a":[1,2]},"delay":"1s"}`, `{"payload":"é"}`, `{"at":"2030-01-31T12:00:00Z"}`, `[`, "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadSpec([]byte(text), shaper.Spec{}, true)
		if err != nil {
			if !errors.Is(err, shaper.ErrInvalid) {
				t.Fatalf("%q: %v is no ErrInvalid", text, err)
			}
			return
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
