package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/shaper"
)

// keys lists the names of fields.
func keys(values []setting.Value) string {
	var names []string
	for _, v := range values {
		names = append(names, v.Name)
	}
	return strings.Join(names, ", ")
}

const escape = `2: an escape in this text is no character: want \UXXXXXXXX, or the character itself`

// wrong holds files with a mistake and the first line of the error, without "f:".
var wrong = []struct{ name, file, want string }{
	// The text is not YAML.
	{"empty", "", `1:1: downstreams: missing: want at least one downstream`},
	{"comment only", "# nothing\n", `1:1: downstreams: missing: want at least one downstream`},
	{"unclosed list", "downstreams: [\n", `1: did not find expected node content`},
	{"unclosed quote", "listen: \"127.0.0.1:8080\ndownstreams: {d: }\n", `3: found unexpected end of stream`},
	{"tab", "downstreams:\n\td:\n", `2: found character that cannot start any token`},
	{"colon in a plain value", "listen: a: b\n", `1: mapping values are not allowed in this context`},
	{"two documents", "downstreams: {d: }\n---\ndownstreams: {e: }\n", `3:1: a second document: want one`},

	// The bytes are not text, or would be read as another text.
	{"invalid UTF-8", "\ufeff# é\nlisten: \"é\xff\"\n", `2:11: invalid UTF-8: want UTF-8`},
	{"UTF-16", "\xff\xfel\x00", `1:1: the text is UTF-16: want UTF-8`},
	{"a second byte order mark", "\ufeff\ufefflisten: :1\ndownstreams: {d: }\n", `1:1: a second byte order mark: want one at most`},
	{"half a surrogate pair", "downstreams:\n  d: {target: {exec: [\"a\\ud83d\"]}}\n", escape},
	{"the other half", "downstreams:\n  d: {target: {exec: [echo, \"\\ufffd\\udc00\"]}}\n",
		escape},
	{"no character at all", "downstreams:\n  d: {target: {exec: [echo, \"\\U00110000\"]}}\n",
		escape},
	{"an alias that may be a secret", "redis: *s3cret\ndownstreams: {d: }\n", `1: a YAML anchor or alias, which is not read here`},
	{"a pair of surrogates", "downstreams:\n  d: {target: {exec: [echo, \"\\ud83d\\ude00\"]}}\n", escape},
	{"null for a value", "downstreams: {d: {rate: null}}\n", `1:25: downstreams.d.rate: no value: want events per duration, such as 10/s, 600/m or 1/90s`},

	// The shape is wrong.
	{"a list", "- a\n- b\n", `1:1: a list: want keys and values`},
	{"a word", "transcoder\n", `1:1: "transcoder": want keys and values`},
	{"no downstreams", "listen: 127.0.0.1:8080\n", `1:1: downstreams: missing: want at least one downstream`},
	{"downstreams empty", "listen: :1\ndownstreams:\n", `1:1: downstreams: missing: want at least one downstream`},
	{"downstreams a list", "downstreams:\n  - transcoder\n", `2:3: downstreams: a list: want keys and values`},
	{"unknown key", "redis_url: redis://h\ndownstreams: {d: }\n",
		`1:1: redis_url: unknown key: want redis, listen, data_dir or downstreams`},
	{"unknown key of a downstream", "downstreams:\n  transcoder:\n    rate: 1/s\n    workers: 16\n",
		`4:5: downstreams.transcoder.workers: unknown key: want ` + keys(setting.Of(&shaper.DownstreamPolicy{})) + `, concurrency, target, defaults, tenants, admit or durability`},
	{"unknown key of a tenant", "downstreams: {t: {tenants: {acme: {rates: 1/s}}}}\n",
		`1:36: downstreams.t.tenants.acme.rates: unknown key: want ` + setting.Or(strings.Split(keys(setting.Of(&shaper.Policy{})), ", "))},
	{"key in the wrong case", "Listen: :80\ndownstreams: {d: }\n",
		`1:1: Listen: unknown key: want redis, listen, data_dir or downstreams`},
	{"key twice", "downstreams:\n  t:\n    rate: 1/s\n    lead: 20ms\n    rate: 2/s\n",
		`5:5: downstreams.t.rate: written twice: want it once, it is on line 3 already`},
	{"tenant twice", "downstreams:\n  t:\n    tenants:\n      a: {}\n      \"a\": {}\n",
		`5:7: downstreams.t.tenants.a: written twice: want it once, it is on line 4 already`},
	{"merge key", "downstreams:\n  t:\n    <<: {rate: 1/s}\n",
		`3:5: downstreams.t: a YAML anchor or alias, which is not read here as a key: want a plain name`},
	{"alias", "downstreams:\n  t:\n    rate: &r 1/s\n    defaults: {rate: *r}\n",
		`3:11: downstreams.t.rate: a YAML anchor or alias, which is not read here: want events per duration, such as 10/s, 600/m or 1/90s`},
	{"tag", "downstreams: {t: {max_in_flight: !!int 5}}\n",
		`1:34: downstreams.t.max_in_flight: a YAML tag, which is not read here: want a whole number, 1 to 1000000, or 0 for as many as the workers have places`},

	// Names.
	{"downstream name", "downstreams:\n  my transcoder: {}\n",
		`2:3: downstreams: downstream "my transcoder": want 1 to 64 of letters, digits, '.', '_' and '-', the first a letter or digit`},
	{"tenant name", "downstreams: {t: {tenants: {\"{acme}\": {}}}}\n",
		`1:29: downstreams.t.tenants: tenant "{acme}": want 1 to 64 of letters, digits, '.', '_' and '-', the first a letter or digit`},

	// Addresses. A Redis URL is never quoted.
	{"redis", "redis: :s3cret@127.0.0.1:6379\ndownstreams: {d: }\n", `1:8: redis: want a URL such as redis://HOST:6379/0`},
	{"redis scheme", "redis: http://u:s3cret@h/\ndownstreams: {d: }\n", `1:8: redis: want a URL such as redis://HOST:6379/0`},
	{"redis nowhere", "redis: redis://\ndownstreams: {d: }\n", `1:8: redis: want a URL such as redis://HOST:6379/0`},
	{"redis empty", "redis:\ndownstreams: {d: }\n", `1:7: redis: want a URL such as redis://HOST:6379/0`},
	{"listen", "listen: 8080\ndownstreams: {d: }\n", `1:9: listen: "8080": want HOST:PORT, such as 127.0.0.1:8080, unix:/PATH or none`},
	{"listen socket", "listen: 'unix:'\ndownstreams: {d: }\n", `1:9: listen: "unix:": want HOST:PORT, such as 127.0.0.1:8080, unix:/PATH or none`},
	{"listen port", "listen: 127.0.0.1:99999\ndownstreams: {d: }\n", `1:9: listen: "127.0.0.1:99999": want HOST:PORT, such as 127.0.0.1:8080, unix:/PATH or none`},
	{"data_dir", "data_dir: ''\ndownstreams: {d: }\n", `1:11: data_dir: "": want the path of a folder`},

	// Numbers.
	{"depth zero", tenant("depth: 0"), `3:24: downstreams.t.defaults.depth: "0": want 1 to 10000000`},
	{"depth negative", tenant("depth: -5"), `3:24: downstreams.t.defaults.depth: "-5": want 1 to 10000000`},
	{"depth too large", tenant("depth: 10000001"), `3:24: downstreams.t.defaults.depth: "10000001": want 1 to 10000000`},
	{"depth beyond int", tenant("depth: 99999999999999999999"), `3:24: downstreams.t.defaults.depth: "99999999999999999999": want 1 to 10000000`},
	{"depth a word", tenant("depth: many"), `3:24: downstreams.t.defaults.depth: "many": want a whole number, 1 to 10000000`},
	{"depth a fraction", tenant("depth: 1.5"), `3:24: downstreams.t.defaults.depth: "1.5": want a whole number, 1 to 10000000`},
	{"depth octal", tenant("depth: 010"), `3:24: downstreams.t.defaults.depth: "010": want a whole number, 1 to 10000000`},
	{"depth missing", tenant("depth:"), `3:24: downstreams.t.defaults.depth: no value: want a whole number, 1 to 10000000`},
	{"depth a list", tenant("depth: [1]"), `3:24: downstreams.t.defaults.depth: a list: want a whole number, 1 to 10000000`},
	{"weight", tenant("weight: 1001"), `3:25: downstreams.t.defaults.weight: "1001": want 1 to 1000`},
	{"max_throttles zero", tenant("max_throttles: 0"), `3:32: downstreams.t.defaults.max_throttles: "0": want 1 to 1000000`},
	{"max_attempts zero", tenant("max_attempts: 0"), `3:31: downstreams.t.defaults.max_attempts: "0": want 1 to 1000`},
	{"max_in_flight zero", tenant("max_in_flight: 0"), `3:32: downstreams.t.defaults.max_in_flight: "0": want 1 to 1000000`},
	{"max_in_flight of a downstream", downstream("max_in_flight: -1"),
		`3:20: downstreams.t.max_in_flight: "-1": want 1 to 1000000, or 0 for as many as the workers have places`},
	{"concurrency zero", downstream("concurrency: 0"), `3:18: downstreams.t.concurrency: "0": want 1 to 10000`},
	{"concurrency too large", downstream("concurrency: 10001"), `3:18: downstreams.t.concurrency: "10001": want 1 to 10000`},
	{"departure_log zero", downstream("departure_log: 0"), `3:20: downstreams.t.departure_log: "0": want 1 to 1000000`},
	{"max_crashes zero", downstream("max_crashes: 0"), `3:18: downstreams.t.max_crashes: "0": want 1 to 1000`},

	// Rates.
	{"rate zero", tenant("rate: 0/s"),
		`3:23: downstreams.t.defaults.rate: "0/s": 0 events: want at least 1 (to stop a queue, pause it)`},
	{"rate a number", tenant("rate: 10"),
		`3:23: downstreams.t.defaults.rate: "10": want events per duration, such as 10/s, 600/m or 1/90s`},
	{"rate missing", tenant("rate:"),
		`3:23: downstreams.t.defaults.rate: no value: want events per duration, such as 10/s, 600/m or 1/90s`},
	{"rate of a downstream", downstream("rate: fast"),
		`3:11: downstreams.t.rate: "fast": want events per duration, such as 10/s, 600/m or 1/90s`},

	// Durations.
	{"timeout without a unit", tenant("timeout: 10"),
		`3:26: downstreams.t.defaults.timeout: "10": want a duration such as 30s, 1h30m or 2d, 1ms to 30d`},
	{"timeout zero", tenant("timeout: 0"), `3:26: downstreams.t.defaults.timeout: "0": want 1ms to 30d`},
	{"timeout too long", tenant("timeout: 31d"), `3:26: downstreams.t.defaults.timeout: "31d": want 1ms to 30d`},
	{"retention", tenant("retention: 1s"), `3:28: downstreams.t.defaults.retention: "1s": want 1m to 90d`},
	{"max_wait zero", tenant("max_wait: 0s"), `3:27: downstreams.t.defaults.max_wait: "0s": want 1ms to 366d, or forever`},
	{"max_wait negative", tenant("max_wait: -1s"), `3:27: downstreams.t.defaults.max_wait: "-1s": want 1ms to 366d, or forever`},
	{"max_wait a word", tenant("max_wait: never"), `3:27: downstreams.t.defaults.max_wait: "never": want a duration such as 30s, 1h30m or 2d, 1ms to 366d, or forever`},
	{"backoff a single duration", tenant("backoff: 5s"),
		`3:26: downstreams.t.defaults.backoff: "5s": want MIN..MAX with 1ms ≤ MIN ≤ MAX ≤ 30d`},
	{"backoff backwards", tenant("backoff: 5m..1s"),
		`3:26: downstreams.t.defaults.backoff: "5m..1s": want MIN..MAX with 1ms ≤ MIN ≤ MAX ≤ 30d`},
	{"backoff zero", tenant("backoff: 0s..0s"),
		`3:26: downstreams.t.defaults.backoff: "0s..0s": want MIN..MAX with 1ms ≤ MIN ≤ MAX ≤ 30d`},
	{"wait", downstream("durability: { wait: -1 }"), `3:25: downstreams.t.durability.wait: "-1": want 1 to 100 replicas, or 0 for none`},
	{"wait for too many", downstream("durability: { wait: 101 }"), `3:25: downstreams.t.durability.wait: "101": want 1 to 100 replicas, or 0 for none`},
	{"wait for ever", downstream("durability: { wait: 1, timeout: 0s }"), `3:37: downstreams.t.durability.timeout: "0s": want 1ms to 1m`},
	{"tolerance", downstream("tolerance: 0ms"), `3:16: downstreams.t.tolerance: "0ms": want 1ms to 10s`},
	{"lease", downstream("lease: 100ms"), `3:12: downstreams.t.lease: "100ms": want 1s to 1h`},

	// Words.
	{"on_full", tenant("on_full: wait"), `3:26: downstreams.t.defaults.on_full: "wait": want reject, drop-oldest or block`},
	{"on_full empty", tenant("on_full: ''"), `3:26: downstreams.t.defaults.on_full: "": want reject, drop-oldest or block`},
	{"unknown_tenants", downstream("unknown_tenants: allow"), `3:22: downstreams.t.unknown_tenants: "allow": want defaults or refuse`},

	// Targets. URLs, headers and environments are never quoted.
	{"target empty", downstream("target: {}"),
		`3:13: downstreams.t.target: want exec: [COMMAND, ARGUMENT, …] or http: URL`},
	{"target both", downstream("target: {exec: [cp], http: http://h/}"),
		`3:13: downstreams.t.target: exec and http: want only one of them`},
	{"exec a line", downstream("target: {exec: ffmpeg -i x}"),
		`3:20: downstreams.t.target.exec: "ffmpeg -i x": want a list: the command, then its arguments, such as [ffmpeg, -i, "{payload.input}"]`},
	{"exec empty", downstream("target: {exec: []}"),
		`3:20: downstreams.t.target.exec: empty: want a list: the command, then its arguments, such as [ffmpeg, -i, "{payload.input}"]`},
	{"exec unquoted brace", downstream("target: {exec: [cp, {payload.input}]}"),
		`3:25: downstreams.t.target.exec[1]: keys and values: want text (quote what begins with "{")`},
	{"exec command from the payload", downstream(`target: {exec: ["{payload.cmd}", x]}`),
		`3:21: downstreams.t.target.exec[0]: "{payload.cmd}": want a command's name or path, without placeholders`},
	{"http", downstream("target: {http: u:s3cret@h/jobs}"),
		`3:20: downstreams.t.target.http: want a URL that begins with http:// or https://, without placeholders`},
	{"http from the payload", downstream(`target: {http: "https://u:s3cret@h/{payload.path}"}`),
		`3:20: downstreams.t.target.http: want a URL that begins with http:// or https://, without placeholders`},
	{"headers beside exec", downstream("target: {exec: [cp], headers: {A: b}}"),
		`3:35: downstreams.t.target.headers: want it only beside http`},
	{"env beside http", downstream("target: {http: http://h/, env: {A: b}}"),
		`3:36: downstreams.t.target.env: want it only beside exec`},
	{"env name", downstream("target: {exec: [cp], env: {A-B: s3cret}}"),
		`3:32: downstreams.t.target.env: "A-B": want the name of a variable`},
	{"env value", downstream("target: {exec: [cp], env: {A: [s3cret]}}"),
		`3:35: downstreams.t.target.env.A: a list: want text`},
	{"header value", downstream(`target: {http: http://h/, headers: {A: "s3cret\nB: c"}}`),
		`3:44: downstreams.t.target.headers.A: want text without any of "\x00\r\n"`},

	// Admission.
	{"admit a mapping", downstream("admit: {token_bucket: 1/s}"),
		`3:12: downstreams.t.admit: keys and values: want a list of rules, such as - token_bucket: 100/s`},
	{"admit without an algorithm", downstream("admit: [{burst: 5}]"),
		`3:13: downstreams.t.admit[0]: no algorithm: want token_bucket, fixed_window, sliding_log, sliding_counter or leaky_bucket`},
	{"admit two algorithms", downstream("admit: [{fixed_window: 1/s, sliding_log: 1/s}]"),
		`3:46: downstreams.t.admit[0].sliding_log: a second algorithm in one rule: want a rule of its own`},
	{"admit burst", downstream("admit: [{token_bucket: 1/s, burst: 0}]"),
		`3:40: downstreams.t.admit[0].burst: "0": want 1 to 1000000000`},
	{"admit burst of a window", downstream("admit: [{fixed_window: 1/s, burst: 5}]"),
		`3:40: downstreams.t.admit[0].burst: want it only beside token_bucket or leaky_bucket`},
	{"admit depth of a token bucket", downstream("admit: [{token_bucket: 1/s, depth: 5}]"),
		`3:40: downstreams.t.admit[0].depth: want it only beside leaky_bucket`},
	{"admit two sizes", downstream("admit: [{leaky_bucket: 1/s, burst: 5, depth: 5}]"),
		`3:50: downstreams.t.admit[0].depth: burst and depth: want only one of them`},
	{"admit name", downstream("admit: [{token_bucket: 1/s, name: a b}]"),
		`3:39: downstreams.t.admit[0].name: "a b": want 1 to 64 of letters, digits, '.', '_' and '-', the first a letter or digit`},
	{"admit names", downstream("admit: [{token_bucket: 1/s, name: a}, {sliding_log: 1/s, name: a}]"),
		`3:68: downstreams.t.admit[1].name: "a": want a name that no other rule of the downstream has`},
	{"admit per global", downstream("admit: [{token_bucket: 1/s, per: global}]"),
		`3:38: downstreams.t.admit[0].per: "global": want tenant or downstream`},
	{"admit cost", downstream("admit: [{token_bucket: 9/s, cost: 0}]"),
		`3:39: downstreams.t.admit[0].cost: "0": want 1 to 1000000`},
	{"admit cost beyond the limit", downstream("admit: [{token_bucket: 9/s, cost: 10}]"),
		`3:39: downstreams.t.admit[0].cost: "10": want at most 9, or no job could ever pass`},
	{"admit a log too long", downstream("admit: [{sliding_log: 100001/s}]"),
		`3:27: downstreams.t.admit[0].sliding_log: sliding-log: limit 100001: want 1 to 100000`},
	{"admit too many", downstream("admit: [" + strings.Repeat("token_bucket: 1/s, ", 33) + "]"),
		`3:12: downstreams.t.admit: 33 rules: want at most 32`},
}

// downstream returns a file whose third line is one of downstream t.
func downstream(line string) string { return "downstreams:\n  t:\n    " + line + "\n" }

// tenant returns a file whose third line is the tenants' defaults of downstream t.
func tenant(field string) string { return downstream("defaults: { " + field + " }") }

func TestWrongFiles(t *testing.T) {
	for _, tt := range wrong {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse("f", []byte(tt.file))
			if err == nil {
				t.Fatalf("no error in\n%s", tt.file)
			}
			first, _, _ := strings.Cut(err.Error(), "\n")
			if first != "f:"+tt.want {
				t.Errorf("got  %s\nwant f:%s", first, tt.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error quotes a secret: %v", err)
			}
			var e *Error
			if f != nil || !errors.As(err, &e) || !errors.Is(err, shaper.ErrInvalid) {
				t.Errorf("got file %v, error %T; want only an *Error that is ErrInvalid", f, err)
			}
		})
	}
}

func TestAllMistakesInOrder(t *testing.T) {
	_, err := Parse("f", []byte("downstreams:\n  b: {lead: 1}\n  a: {lease: 2}\nlisten: 3\n"))
	want := `f:2:13: downstreams.b.lead: "1": want a duration such as 30s, 1h30m or 2d, 1ms to 10s
f:3:14: downstreams.a.lease: "2": want a duration such as 30s, 1h30m or 2d, 1s to 1h
f:4:9: listen: "3": want HOST:PORT, such as 127.0.0.1:8080, unix:/PATH or none`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestManyMistakes(t *testing.T) {
	var b strings.Builder
	b.WriteString("downstreams:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "  d%d: {lead: 0}\n", i)
	}
	_, err := Parse("f", []byte(b.String()))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxErrors+1 || lines[maxErrors] != "f: and 80 more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

// FuzzParse looks for texts that make Parse panic, return both a file and an error, or place an
// error outside the text.
func FuzzParse(f *testing.F) {
	f.Add(contract)
	for _, tt := range wrong {
		f.Add(tt.file)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("f", []byte(text))
		if (file == nil) == (err == nil) {
			t.Fatalf("file %v and error %v", file, err)
		}
		var e *Error
		if errors.As(err, &e) && (e.Line < 1 || e.Column < 0 || e.Line > 1+strings.Count(text, "\n")+strings.Count(text, "\r")) {
			t.Errorf("the error is outside the text: %v", err)
		}
		for _, d := range fileOf(file) {
			if err := errors.Join(shaper.ValidName("downstream", d.Name), d.Policy.Validate()); err != nil {
				t.Errorf("accepted, but %v", err)
			}
			for name, p := range d.Tenants {
				if err := errors.Join(shaper.ValidName("tenant", name), p.Validate()); err != nil {
					t.Errorf("accepted, but %v", err)
				}
			}
		}
	})
}

func fileOf(f *File) []Downstream {
	if f == nil {
		return nil
	}
	return f.Downstreams
}
