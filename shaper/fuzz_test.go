package shaper

import (
	"bytes"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"
)

// hashTag is the part of a key that Redis Cluster hashes.
func hashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !ok || !closed || tag == "" {
		return key
	}
	return tag
}

// A name that is accepted comes back out of every key that it is part of, and cannot reach another downstream's or tenant's keys.
func FuzzName(f *testing.F) {
	for _, s := range []string{"a", "a.b-c_D9", "", "-a", "a}b", "{a}", "a:b", "a b", "a\n", "a\x00", "ａ", "é", "*", strings.Repeat("x", 64), strings.Repeat("x", 65)} {
		f.Add(s, "t", "id")
		f.Add("d", s, "id")
		f.Add("d", "t", s)
	}
	good := regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z`)
	f.Fuzz(func(t *testing.T, downstream, tenant, id string) {
		for _, s := range []string{downstream, tenant, id} {
			if err := ValidName("x", s); (err == nil) != good.MatchString(s) {
				t.Errorf("%q: %v", s, err)
			}
		}
		if firstErr(ValidName("", downstream), ValidName("", tenant), ValidName("", id)) != nil {
			return
		}
		q := queue{downstream: downstream, prefix: prefix(downstream)}
		key := q.endKey(tenant, id)
		if hashTag(key) != downstream {
			t.Errorf("hash tag of %q is %q, want %q", key, hashTag(key), downstream)
		}
		rest, ok := strings.CutPrefix(key, q.prefix+"e:")
		gotTenant, gotID, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 || gotTenant != tenant || gotID != id {
			t.Errorf("%q reads as tenant %q, id %q; want %q, %q", key, gotTenant, gotID, tenant, id)
		}
		k := Ticket{tenant, id, 7}
		if got, err := ParseTicket(k.String()); err != nil || got != k {
			t.Errorf("ticket %q reads as %+v, %v", k, got, err)
		}
		if s, ok := parseSignal("c " + tenant + " " + id); !ok || s != (Signal{'c', tenant, id}) {
			t.Errorf("signal reads as %+v, %v", s, ok)
		}
	})
}

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
		body, _, err := s.encode(true)
		if err != nil {
			t.Fatal(err)
		}
		e, err := decodeBody("1234567 " + body)
		if err != nil {
			t.Fatalf("%q cannot be read: %v", body, err)
		}
		if e.typ != s.Type || !bytes.Equal(e.payload, s.Payload) || !maps.Equal(e.headers, s.Headers) || e.timeout != s.Timeout ||
			e.attempts != s.MaxAttempts || e.since.UnixMicro() != 1234567 {
			t.Errorf("%+v reads as %+v", s, e)
		}
	})
}

// What Redis holds is not trusted to be well formed: nothing that reads it panics, and a job that reads well is in a known state.
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
		_, _ = decodeBody(s)
		_, _ = parseSignal(s)
		if k, err := ParseTicket(s); err == nil {
			if again, err := ParseTicket(k.String()); err != nil || again != k {
				t.Errorf("ticket %q reads as %+v, and that as %+v, %v", s, k, again, err)
			}
		}
		h := map[string]string{}
		for _, field := range append(policyFields(Policy{}), downstreamFields(DownstreamPolicy{})...) {
			h[field] = s
		}
		_, _ = readPolicy(h).Validate(), readDownstream(h).WithDefaults()
		for _, v := range []any{nil, s, []any{}, []any{s}, []any{s, int64(1), nil, []any{s}}, int64(3)} {
			r := replyOf(v)
			_, _, _, _ = r.str(), r.int(), r.instant(), r.micros()
			_, _ = granted(replyOf(v), "tok")
			_ = tenantInfo(replyOf(v), Policy{}, time.Time{})
		}
	})
}
