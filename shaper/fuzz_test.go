package shaper

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// What is put into a body comes out of it, whatever the payload and the headers hold.
func FuzzBody(f *testing.F) {
	f.Add("type", []byte("payload"), "k", "v", int64(5), 3)
	f.Add("utf8", []byte("\xff"), "k\xed\xa0\xbd", "v\xff", int64(0), 0)
	f.Add("json", []byte(`{"a":"\ud83d","a":null}`), `\ud83d`, "<\u2028\ufffd", int64(0), 0)
	f.Add("video:x", []byte("\n\n1 2 3\n\x00\xff"), "", "a\nb", int64(0), 0)
	f.Fuzz(func(t *testing.T, typ string, payload []byte, key, value string, ms int64, attempts int) {
		c := Client{opts: ClientConfig{MaxPayload: 1 << 20}}
		s := Spec{Type: typ, Payload: payload, MaxAttempts: attempts, Timeout: time.Duration(ms%1e9) * time.Millisecond}
		if key != "" {
			s.Headers = map[string]string{key: value}
		}
		if _, err := c.check(&s); err != nil {
			return
		}
		body, _, err := bodyOf(&s).Encode(true)
		if err != nil {
			t.Fatal(err)
		}
		e, err := queue.ReadBody("1234567 " + body)
		if err != nil {
			t.Fatalf("%q cannot be read: %v", body, err)
		}
		if e.Type != s.Type || !bytes.Equal(e.Payload, s.Payload) || !maps.Equal(e.Headers, s.Headers) || e.Timeout != s.Timeout ||
			e.MaxAttempts != s.MaxAttempts || e.Since.UnixMicro() != 1234567 {
			t.Errorf("%+v reads as %+v", s, e)
		}
	})
}

// What Redis holds is not trusted to be well formed: nothing that reads it panics, and a job that
// reads well is in a known state.
func FuzzValuesFromRedis(f *testing.F) {
	for _, s := range []string{
		"r 1 2 0 0 p.tok 1700000000123456 1700000000123456 - - ", "x 1 1 0 0 t 1 1 a/b failed no luck\nat all", "q 1 1 0 0 t 1 1 - - ",
		"done 1 0 0 p.tok 5 5 5 - d.n\ntype\nresult", "done 1\n\n", "", "\n\n\n", "1 2 3 4 5 d.n\ntype\n{}\npayload", "1 2 3 4 5 d\nt\n[]\n",
		"99999999999999999999 -1 a 4 5 d\nt\n\n", "10/1000000", "/", "a a 9", "c a b", "w", "c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		j := Job{ID: "i", Tenant: "t"}
		if err := j.readState(s); err == nil && (j.State == "" || j.State.Ended() && j.State != StateDead) {
			t.Errorf("state %q reads as %q", s, j.State)
		}
		j = Job{}
		_ = j.readEnd(s)
		h := map[string]string{}
		for _, field := range append(policyFields(Policy{}), downstreamFields(DownstreamPolicy{})...) {
			h[field] = s
		}
		_, _ = readPolicy(h).Validate(), readDownstream(h).WithDefaults()
		for _, v := range []any{nil, s, []any{}, []any{s}, []any{s, int64(1), nil, []any{s}}, int64(3)} {
			_ = tenantInfo(queue.ReplyOf(v), Policy{}, time.Time{})
		}
	})
}
