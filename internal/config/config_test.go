package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/shaper"
)

// contract is the file that the command-line contract shows.
const contract = `
redis: redis://127.0.0.1:6379/0
listen: 127.0.0.1:8080
downstreams:
  transcoder:
    rate: 50/s                 # the whole downstream; optional
    max_in_flight: 16
    concurrency: 16            # workers in this process
    target: { exec: [ffmpeg, -i, "{input}", …] }      # or http: URL; Go programs register handlers instead
    unknown_tenants: defaults  # or refuse
    tolerance: 20ms            # and lead, lease: the defaults serve
    defaults: { rate: 10/s, depth: 1000, on_full: reject, max_attempts: 5, max_throttles: 20, backoff: 1s..5m, timeout: 10m, max_wait: 1h, max_in_flight: 4, retention: 1h }
    tenants:
      acme: { rate: 20/s, depth: 5000, weight: 2 }
    admit:
      - { token_bucket: 100/s, burst: 1000 }
      - { fixed_window: 1000/d }
`

func TestParseContract(t *testing.T) {
	got, err := Parse("shaper.yaml", []byte(contract))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Name:   "shaper.yaml",
		Redis:  "redis://127.0.0.1:6379/0",
		Listen: "127.0.0.1:8080",
		Downstreams: []Downstream{{Name: "transcoder", Config: jobshaper.Config{
			Policy: shaper.DownstreamPolicy{
				Rate: buckets.PerSecond(50), MaxInFlight: 16,
				UnknownTenants: shaper.UseDefaults, Tolerance: 20 * time.Millisecond,
				Defaults: shaper.Policy{
					Rate: buckets.PerSecond(10), Depth: 1000, OnFull: shaper.Reject, MaxAttempts: 5, MaxThrottles: 20,
					Backoff: shaper.Backoff{Min: time.Second, Max: 5 * time.Minute},
					Timeout: 10 * time.Minute, MaxWait: time.Hour, MaxInFlight: 4, Retention: time.Hour,
				},
				Admit: []policing.Rule{
					{Params: buckets.Params{Algorithm: buckets.TokenBucket, Limit: 1000, Rate: buckets.PerSecond(100)}},
					{Params: buckets.Params{Algorithm: buckets.FixedWindow, Limit: 1000, Window: 24 * time.Hour}},
				},
			},
			Concurrency: 16,
			Tenants:     map[string]shaper.Policy{"acme": {Rate: buckets.PerSecond(20), Depth: 5000, Weight: 2}},
		}, Target: Target{Exec: []string{"ffmpeg", "-i", "{input}", "…"}, Line: 9}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Parse =\n%+v\nwant\n%+v", got, want)
	}
}

func TestParseKeepsCharacters(t *testing.T) {
	got, err := Parse("f", []byte(`downstreams: {d: {target: {exec: [echo, "\U0001f600", "`+"\ufffd"+`", '\ud83d', "\\udc00"]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"echo", "😀", "\ufffd", `\ud83d`, `\udc00`}; !slices.Equal(got.Downstreams[0].Target.Exec, want) {
		t.Errorf("%+q, want %+q", got.Downstreams[0].Target.Exec, want)
	}
}

// Documents in which nothing is written do not count.
func TestParseSkipsEmptyDocuments(t *testing.T) {
	for _, text := range []string{"---\ndownstreams: {d: }\n---\n", "---\n---\ndownstreams: {d: }\n...\n", "# one\n---\ndownstreams: {d: }\n---\n# two\n"} {
		if f, err := Parse("f", []byte(text)); err != nil || len(f.Downstreams) != 1 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestParseReadsTheRest(t *testing.T) {
	got, err := Parse("f", []byte("\ufeffdata_dir: ./data\r\nredis: redis-sentinel://:p@a:1,b:2?master=m"+`
downstreams:
  mail:
    max_in_flight: 0       # as many as the workers have places
    lead: 30ms
    durability: { wait: 2, timeout: 250ms }
    lease: 1m
    max_crashes: 2
    departure_log: 5000
    unknown_tenants: refuse
    target:
      http: https://mail.example/send
      headers: {Authorization: "Bearer x", X-Retries: 3}
    defaults: {max_wait: 2d, on_full: block}
    tenants:
      "1e3":               # a name that YAML would take for a number
      null: {max_wait: forever, on_full: drop-oldest}
  files:
    target: {exec: [cp, -v, 1], env: {LANG: C, N: 5}, dir: /srv}
    admit:
      - sliding_log: 5/m
      - sliding_counter: 6/h
      - leaky_bucket: 1/90s
        burst: 3
      - { leaky_bucket: 10/s, depth: 20, name: both, per: downstream, cost: 5 }
  empty:
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &File{
		Name: "f", DataDir: "./data", Redis: "redis-sentinel://:p@a:1,b:2?master=m",
		Downstreams: []Downstream{
			{Name: "empty"},
			{Name: "files", Config: jobshaper.Config{
				Policy: shaper.DownstreamPolicy{Admit: []policing.Rule{
					{Params: buckets.Params{Algorithm: buckets.SlidingLog, Limit: 5, Window: time.Minute}},
					{Params: buckets.Params{Algorithm: buckets.SlidingCounter, Limit: 6, Window: time.Hour}},
					{Params: buckets.Params{Algorithm: buckets.LeakyBucket, Limit: 3, Rate: buckets.Rate{Events: 1, Period: 90 * time.Second}}},
					{Params: buckets.Params{Algorithm: buckets.LeakyBucket, Limit: 20, Rate: buckets.PerSecond(10)},
						Name: "both", Per: policing.PerDownstream, Cost: 5},
				}},
			}, Target: Target{Exec: []string{"cp", "-v", "1"}, Env: map[string]string{"LANG": "C", "N": "5"}, Dir: "/srv", Line: 20}},
			{Name: "mail", Config: jobshaper.Config{
				Policy: shaper.DownstreamPolicy{
					Lead: 30 * time.Millisecond, Lease: time.Minute, MaxCrashes: 2, DepartureLog: 5000, UnknownTenants: shaper.RefuseUnknown,
					Defaults: shaper.Policy{MaxWait: 48 * time.Hour, OnFull: shaper.Block},
				},
				Client: shaper.ClientConfig{Replicas: 2, ReplicaTimeout: 250 * time.Millisecond},
				Tenants: map[string]shaper.Policy{
					"1e3":  {},
					"null": {MaxWait: -1, OnFull: shaper.DropOldest},
				},
			}, Target: Target{HTTP: "https://mail.example/send", Headers: map[string]string{"Authorization": "Bearer x", "X-Retries": "3"}, Line: 13}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Parse =\n%+v\nwant\n%+v", got, want)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shaper.yaml")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load of no file: %v, want os.ErrNotExist", err)
	}
	if err := os.WriteFile(path, []byte(contract), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Name != path || f.Listen != "127.0.0.1:8080" {
		t.Errorf("Load: name %q, listen %q; want %q and what is in it", f.Name, f.Listen, path)
	}
	if err := os.WriteFile(path, make([]byte, MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "want at most 8388608 bytes") {
		t.Errorf("Load of a large file: %v", err)
	}
}

// Every config file that ships is valid.
func TestShippedFiles(t *testing.T) {
	paths, err := filepath.Glob("../../deploy/shaper*.yaml")
	if err != nil || len(paths) < 2 {
		t.Fatalf("found %v, %v; want the example and that of docker-compose.yml", paths, err)
	}
	for _, path := range paths {
		if _, err := Load(path); err != nil {
			t.Error(err)
		}
	}
}

// The example shows every key.
func TestExampleIsComplete(t *testing.T) {
	const path = "../../deploy/shaper.yaml"
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Downstreams) < 2 {
		t.Errorf("%d downstreams in %s, want an exec and an http one", len(f.Downstreams), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range knownKeys() {
		if !strings.Contains(string(text), key+":") {
			t.Errorf("%s does not show the key %q", path, key)
		}
	}
}

var write = flag.Bool("write", false, "write what the example says of each field anew")

// The example explains each field of a policy as its row does, with the range and the default. Run
// with -write after a row has changed; a field that is not in the example yet is added to it.
func TestExampleExplainsFields(t *testing.T) {
	const path = "../../deploy/shaper.yaml"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d Downstream
	lines := strings.Split(string(before), "\n")
	lines = explain(t, lines, "  transcoder:", append(setting.Of(&d.Policy), downstreamTable.Of(&d)...))
	lines = explain(t, lines, "    defaults:", setting.Of(&d.Policy.Defaults))
	after := strings.Join(lines, "\n")
	if after == string(before) {
		return
	}
	if !*write {
		t.Errorf("%s does not say what the rows say: go test ./internal/config -run %s -write writes\n%s", path, t.Name(), after)
	} else if err := os.WriteFile(path, []byte(after), 0o644); err != nil {
		t.Error(err)
	}
}

// explain puts the text of each field's row behind its key below the section, the first of that
// name, and adds keys that are missing.
func explain(t *testing.T, lines []string, section string, fields []setting.Value) []string {
	const column, width = 34, 100
	margin := strings.Repeat(" ", column) + "#"
	section = lines[slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, section) })]
	at := slices.Index(lines, section)
	first, indent := at, strings.Repeat(" ", len(section)-len(strings.TrimLeft(section, " "))+2)
	for _, v := range fields {
		key := indent + v.Name + ":"
		i := slices.IndexFunc(lines[first:], func(l string) bool { return l == "" || strings.HasPrefix(l, key) })
		if lines[first+i] == "" {
			if v.Default() == "none" || v.Default() == "" {
				t.Fatalf("write an example of %s below %q first", v.Name, section)
			}
			lines = slices.Insert(lines, at+1, key+" "+v.Default())
			i = at + 1 - first
		}
		at = first + i
		code, _, _ := strings.Cut(lines[at], " #")
		text := []string{fmt.Sprintf("%-*s#", column, strings.TrimRight(code, " "))}
		for _, word := range strings.Fields(v.Doc()) {
			if last := &text[len(text)-1]; utf8.RuneCountInString(*last+" "+word) <= width {
				*last += " " + word
			} else {
				text = append(text, margin+" "+word)
			}
		}
		rest := 1
		for strings.HasPrefix(lines[at+rest], margin) {
			rest++
		}
		lines = slices.Replace(lines, at, at+rest, text...)
		at += len(text) - 1
	}
	return lines
}

// knownKeys gets every key from the decoder, by giving each section a key that it does not know.
func knownKeys() []string {
	_, err := Parse("f", []byte(`
x:
downstreams:
  d: {x: , defaults: {x: }, target: {x: }, durability: {x: }, admit: [{x: }]}
`))
	var keys []string
	for _, line := range strings.Split(err.Error(), "\n") {
		_, names, _ := strings.Cut(line, "unknown key: want ")
		keys = append(keys, strings.Split(strings.ReplaceAll(names, " or ", ", "), ", ")...)
	}
	return keys
}

// The ranges of a file's durability are those that shaper.ClientConfig has for programs.
func TestDurabilityIsTheClients(t *testing.T) {
	for i, tries := range [][]string{{"0", "1", "100", "101"}, {"1us", "1ms", "1m", "61s"}} {
		for _, text := range tries {
			var o shaper.ClientConfig
			v := durabilityTable.Of(&o)[i]
			if want := v.Parse(text); want != "" {
				t.Fatalf("%s: %s: want %s", v.Name, text, want)
			}
			var wrong *shaper.FieldError
			if err := o.Validate(); errors.As(err, &wrong) != (v.Check() != "") || err != nil && (wrong.Want != v.Check() || wrong.Field != v.Name) {
				t.Errorf("%s: %s: want %q here, and there %v", v.Name, text, v.Check(), err)
			}
		}
	}
}
