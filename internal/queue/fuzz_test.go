package queue

import (
	"regexp"
	"strings"
	"testing"
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

// A name that is accepted can be read back from every key that it is part of, and cannot reach the
// keys of another downstream or tenant.
func FuzzName(f *testing.F) {
	for _, s := range []string{"a", "a.b-c_D9", "", "-a", "a}b", "{a}", "a:b", "a b", "a\n", "a\x00", "ａ", "é", "*", strings.Repeat("x", 64), strings.Repeat("x", 65)} {
		f.Add(s, "t", "id")
		f.Add("d", s, "id")
		f.Add("d", "t", s)
	}
	good := regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z`)
	f.Fuzz(func(t *testing.T, downstream, tenant, id string) {
		for _, s := range []string{downstream, tenant, id} {
			if is := IsName(s); is != good.MatchString(s) {
				t.Errorf("%q: %v", s, is)
			}
		}
		if !IsName(downstream) || !IsName(tenant) || !IsName(id) {
			return
		}
		q := Queue{Prefix: prefix(downstream)}
		key := q.EndKey(tenant, id)
		if hashTag(key) != downstream {
			t.Errorf("hash tag of %q is %q, want %q", key, hashTag(key), downstream)
		}
		rest, ok := strings.CutPrefix(key, q.Prefix+"e:")
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

// What Redis holds is not trusted to be well formed: nothing that reads it panics.
func FuzzValuesFromRedis(f *testing.F) {
	for _, s := range []string{
		"r 1 2 0 0 p.tok 1700000000123456 1700000000123456 - - ", "x 1 1 0 0 t 1 1 a/b failed no luck\nat all", "q 1 1 0 0 t 1 1 - - ",
		"done 1 0 0 p.tok 5 5 5 - d.n\ntype\nresult", "done 1\n\n", "", "\n\n\n", "1 2 3 4 5 d.n\ntype\n{}\npayload", "1 2 3 4 5 d\nt\n[]\n",
		"99999999999999999999 -1 a 4 5 d\nt\n\n", "10/1000000", "/", "a a 9", "c a b", "w", "c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, _ = ReadBody(s)
		_, _ = parseSignal(s)
		if k, err := ParseTicket(s); err == nil {
			if again, err := ParseTicket(k.String()); err != nil || again != k {
				t.Errorf("ticket %q reads as %+v, and that as %+v, %v", s, k, again, err)
			}
		}
		for _, v := range []any{nil, s, []any{}, []any{s}, []any{s, int64(1), nil, []any{s}}, int64(3)} {
			r := ReplyOf(v)
			_, _, _, _, _ = r.Str(), r.Int(), r.Instant(), r.Micros(), r.Score()
			_, _ = ReadGrant(ReplyOf(v), "tok")
		}
	})
}
