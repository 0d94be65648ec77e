package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

// serve starts the API on a Redis of its own, for the downstream "d".
func serve(t *testing.T, change func(*Config)) (url string, admin *shaper.Admin) {
	t.Helper()
	rdb := redistest.Open(t)
	client, err := shaper.NewClient(rdb, "d", shaper.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if admin, err = shaper.NewAdmin(rdb, "d"); err != nil {
		t.Fatal(err)
	}
	gate := queue.NewGate(queue.Open(rdb, "d"))
	if _, err := gate.Beat(t.Context(), "p", 1, time.Hour, nil); err != nil { // so that waiting jobs have workers
		t.Fatal(err)
	}
	return serveOn(t, client, change), admin
}

func serveOn(t *testing.T, client Client, change func(*Config)) string {
	t.Helper()
	cfg := Config{Clients: map[string]Client{"d": client}, Loopback: true, Registry: prometheus.NewRegistry(),
		Ready: func(context.Context) error { return nil }, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.Close()
		h.Close()
	})
	return server.URL
}

// answer is a response, read.
type answer struct {
	status int
	header http.Header
	body   string
	fields map[string]any // of a JSON body
}

func ask(t *testing.T, method, url, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(text)}
	_ = json.Unmarshal(text, &a.fields) // not every body is JSON
	return a
}

const jobsPath = "/v1/downstreams/d/tenants/acme/jobs"

func TestOfferAndShow(t *testing.T) {
	url, _ := serve(t, nil)
	a := ask(t, "POST", url+jobsPath, `{"type":"video:transcode","payload":{"input": "a.mov", "n": 1e2},"id":"j1"}`)
	if a.status != 202 || a.fields["id"] != "j1" || a.fields["status"] != "accepted" || a.fields["position"] != 1.0 {
		t.Fatalf("offer: %d %s", a.status, a.body)
	}
	for _, field := range []string{"id", "tenant", "downstream", "status", "reason", "duplicate", "position", "eta", "retry_after_ms"} {
		if _, ok := a.fields[field]; !ok {
			t.Errorf("no field %s in %s", field, a.body)
		}
	}
	a = ask(t, "GET", url+a.header.Get("Location"), "")
	if a.status != 200 || a.fields["state"] != "waiting" || a.fields["payload"] != `{"input":"a.mov","n":1e2}` {
		t.Errorf("show: %d %s", a.status, a.body)
	}
	if a := ask(t, "GET", url+jobsPath+"/nope", ""); a.status != 404 || a.fields["title"] != "Not Found" {
		t.Errorf("show what is not there: %d %s", a.status, a.body)
	}
}

func TestPayloads(t *testing.T) {
	url, _ := serve(t, nil)
	for _, row := range []struct{ payload, want string }{
		{`"text \u00e9\n"`, "text é\n"}, // a string is its text
		{`{ "a" : [ 1 , 2 ] }`, `{"a":[1,2]}`},
		{`12345678901234567890`, `12345678901234567890`}, // no number is rounded
		{`null`, `null`},
		{`{"a":1,"a":null,"b":"\ud83d"}`, `{"a":1,"a":null,"b":"\ud83d"}`}, // left to its reader
		{`"\ud83d\ude00"`, "😀"},
		{`true`, `true`},
		{`"` + strings.Repeat("x", shaper.DefaultMaxPayload) + `"`, strings.Repeat("x", shaper.DefaultMaxPayload)},
	} {
		a := ask(t, "POST", url+jobsPath, `{"type":"x","payload":`+row.payload+`}`)
		if a.status != 202 {
			t.Errorf("payload %.40s: %d %s", row.payload, a.status, a.body)
			continue
		}
		if a := ask(t, "GET", url+a.header.Get("Location"), ""); a.fields["payload"] != row.want {
			t.Errorf("payload %.40s: got %.60v", row.payload, a.fields["payload"])
		}
	}
}

func TestByteOrderMark(t *testing.T) {
	url, _ := serve(t, nil)
	a := ask(t, "POST", url+jobsPath, "\ufeff"+`{"type":"x","payload":"\ufeffp"}`)
	if a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := ask(t, "GET", url+a.header.Get("Location"), ""); a.fields["payload"] != "\ufeffp" {
		t.Errorf("the payload became %q", a.fields["payload"])
	}
}

func TestWrongRequests(t *testing.T) {
	url, _ := serve(t, nil)
	for _, row := range []struct {
		name, method, path, body string
		status                   int
		field                    string
		header                   []string
	}{
		{"unknown field", "POST", jobsPath, `{"type":"x","colour":1}`, 400, "colour", nil},
		{"a field in another case", "POST", jobsPath, `{"Type":"x"}`, 400, "Type", nil},
		{"a field twice", "POST", jobsPath, `{"type":"x","type":"y"}`, 400, "type", nil},
		{"the tenant is in the path", "POST", jobsPath, `{"type":"x","tenant":"b"}`, 400, "tenant", nil},
		{"trailing data", "POST", jobsPath, `{"type":"x"}{}`, 400, "", nil},
		{"trailing rubbish", "POST", jobsPath, `{"type":"x"} x`, 400, "", nil},
		{"no object", "POST", jobsPath, `[]`, 400, "", nil},
		{"nothing", "POST", jobsPath, ``, 400, "", nil},
		{"cut off", "POST", jobsPath, `{"type":"x`, 400, "", nil},
		{"invalid UTF-8", "POST", jobsPath, "{\"type\":\"x\",\"payload\":\"\xff\"}", 400, "", nil},
		{"no type", "POST", jobsPath, `{}`, 400, "type", nil},
		{"a number for a duration", "POST", jobsPath, `{"type":"x","delay":5}`, 400, "delay", nil},
		{"a fraction for a count", "POST", jobsPath, `{"type":"x","max_attempts":1.5}`, 400, "max_attempts", nil},
		{"a zero that would mean default", "POST", jobsPath, `{"type":"x","timeout":"0s"}`, 400, "timeout", nil},
		{"null", "POST", jobsPath, `{"type":null}`, 400, "type", nil},
		{"half a character", "POST", jobsPath, `{"type":"x","payload":"a\ud83d"}`, 400, "payload", nil},
		{"a header twice", "POST", jobsPath, `{"type":"x","headers":{"a":"1","a":"2"}}`, 400, "headers", nil},
		{"null for a header", "POST", jobsPath, `{"type":"x","headers":{"a":null}}`, 400, "headers.a", nil},
		{"a count that is not in digits", "POST", jobsPath, `{"type":"x","max_attempts":1e2}`, 400, "max_attempts", nil},
		{"too deep", "POST", jobsPath, `{"type":"x","payload":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`, 400, "payload", nil},
		{"two byte order marks", "POST", jobsPath, "\ufeff\ufeff" + `{"type":"x"}`, 400, "", nil},
		{"a bad id", "POST", jobsPath, `{"type":"x","id":"a/b"}`, 400, "id", nil},
		{"a bad tenant", "POST", "/v1/downstreams/d/tenants/a%20b/jobs", `{"type":"x"}`, 400, "tenant", nil},
		{"a downstream that is not served", "POST", "/v1/downstreams/e/tenants/a/jobs", `{"type":"x"}`, 404, "", nil},
		{"payload too large", "POST", jobsPath, `{"type":"x","payload":"` + strings.Repeat("x", shaper.DefaultMaxPayload+1) + `"}`, 413, "payload", nil},
		{"body too large", "POST", jobsPath, strings.Repeat(" ", maxBody+1), 413, "", nil},
		{"compressed", "POST", jobsPath, `{"type":"x"}`, 415, "", []string{"Content-Encoding", "gzip"}},
		{"wrong method", "DELETE", jobsPath, ``, 405, "", nil},
		{"wrong path", "GET", "/v2", ``, 404, "", nil},
		{"from a web page", "POST", jobsPath, `{"type":"x"}`, 403, "", []string{"Sec-Fetch-Site", "cross-site"}},
		{"by a name that a page gave us", "POST", jobsPath, `{"type":"x"}`, 403, "", []string{"Host", "evil.example"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := ask(t, row.method, url+row.path, row.body, row.header...)
			field, _ := a.fields["field"].(string)
			if a.status != row.status || field != row.field {
				t.Fatalf("%d, field %q, want %d, %q: %s", a.status, field, row.status, row.field, a.body)
			}
			if a.header.Get("Content-Type") != "application/problem+json" || a.fields["status"] != float64(row.status) ||
				a.fields["type"] != "about:blank" || a.fields["title"] == "" || a.fields["detail"] == "" {
				t.Errorf("not a problem of RFC 9457: %v %s", a.header, a.body)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	var registry *prometheus.Registry
	url, admin := serve(t, func(c *Config) { registry = c.Registry })
	if err := admin.SetTenant(t.Context(), "acme", shaper.Policy{Depth: 1}); err != nil {
		t.Fatal(err)
	}
	ask(t, "POST", url+jobsPath, `{"type":"x","id":"one"}`)
	a := ask(t, "POST", url+jobsPath, `{"type":"x"}`)
	if a.status != 429 || a.fields["reason"] != "full" || a.header.Get("Retry-After") != "1" || a.fields["retry_after_ms"].(float64) < 1 {
		t.Errorf("full: %d %v %s", a.status, a.header, a.body)
	}
	if a := ask(t, "POST", url+jobsPath, `{"type":"y","id":"one"}`); a.status != 409 || a.fields["reason"] != "conflict" {
		t.Errorf("conflict: %d %s", a.status, a.body)
	}
	if a := ask(t, "POST", url+jobsPath, `{"type":"x","id":"one"}`); a.status != 202 || a.fields["duplicate"] != true || a.fields["state"] != "waiting" {
		t.Errorf("the same again: %d %s", a.status, a.body)
	}
	want := `# HELP shaper_refused_total Jobs that this process refused over HTTP, by reason.
# TYPE shaper_refused_total counter
shaper_refused_total{downstream="d",reason="conflict"} 1
shaper_refused_total{downstream="d",reason="full"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "shaper_refused_total"); err != nil {
		t.Error(err)
	}
}

const alpha, beta = "alpha-alpha-alpha", "beta-beta-beta-beta"

func TestTokens(t *testing.T) {
	tokens, err := Tokens(" " + alpha + " ,," + beta)
	if err != nil {
		t.Fatal(err)
	}
	url, _ := serve(t, func(c *Config) { c.Tokens = tokens })
	for _, row := range []struct {
		header string
		status int
	}{{"", 401}, {"Bearer gamma", 401}, {alpha, 401}, {"Basic " + alpha, 401}, {"Bearer ", 401}, {"Bearer " + alpha, 202}, {"bearer " + beta, 202}} {
		a := ask(t, "POST", url+jobsPath, `{"type":"x"}`, "Authorization", row.header)
		if a.status != row.status || (a.status == 401) != (a.header.Get("WWW-Authenticate") != "") {
			t.Errorf("%q: %d %v", row.header, a.status, a.header)
		}
	}
	for path, status := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 401} {
		if a := ask(t, "GET", url+path, ""); a.status != status {
			t.Errorf("%s without a token: %d", path, a.status)
		}
	}
	if a := ask(t, "GET", url+"/metrics", "", "Authorization", "Bearer "+alpha); a.status != 200 {
		t.Errorf("metrics with a token: %d", a.status)
	}
	// A page's own name may lead to this machine.
	for path, status := range map[string]int{"/healthz": 403, "/metrics": 403, jobsPath: 403} {
		if a := ask(t, "GET", url+path, "", "Host", "evil.example"); a.status != status {
			t.Errorf("%s as evil.example: %d", path, a.status)
		}
	}
	if a := ask(t, "GET", url+"/metrics", "", "Host", "shaper.example", "Authorization", "Bearer "+alpha); a.status != 200 {
		t.Errorf("by a proxy, with a token: %d", a.status)
	}
}

func TestShortTokensAreRefused(t *testing.T) {
	_, err := Tokens(alpha + ",s3cret")
	if err == nil || !errors.Is(err, shaper.ErrInvalid) || !strings.Contains(err.Error(), "token 2, of 6 bytes") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v, want an error that says which, and does not quote it", err)
	}
}

// Who guesses tokens is counted, logged, and has to wait; who knows one does not, from the same
// address.
func TestGuessedTokens(t *testing.T) {
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	url, _ := serve(t, func(c *Config) {
		c.Tokens, c.Registry, c.Log = []string{alpha}, reg, slog.New(slog.NewTextHandler(&log, nil))
	})
	const tries = 100
	refused := map[int]int{}
	for i := range tries {
		a := ask(t, "POST", url+jobsPath, `{"type":"x"}`, "Authorization", fmt.Sprint("Bearer guess", i))
		refused[a.status]++
		if a.status == 429 && a.header.Get("Retry-After") == "" {
			t.Fatalf("%v", a.header)
		}
	}
	if refused[401] < int(guesses.Limit) || refused[429] == 0 || refused[401]+refused[429] != tries {
		t.Errorf("answers %v, want %d of 401 or some more, and then 429", refused, guesses.Limit)
	}
	if a := ask(t, "POST", url+jobsPath, `{"type":"x"}`, "Authorization", "Bearer "+alpha); a.status != 202 {
		t.Errorf("with a token meanwhile: %d", a.status)
	}
	if n := strings.Count(log.String(), "without a valid token"); n == 0 || n > tries/4 || strings.Contains(log.String(), "guess") {
		t.Errorf("%d lines in the log, want few, and no tokens:\n%s", n, log.String())
	}
	want := fmt.Sprintf("# HELP shaper_http_unauthorized_total HTTP requests without a valid token.\n# TYPE shaper_http_unauthorized_total counter\nshaper_http_unauthorized_total %d\n", tries)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "shaper_http_unauthorized_total"); err != nil {
		t.Error(err)
	}
}

func TestHealth(t *testing.T) {
	var fail error
	url, _ := serve(t, func(c *Config) { c.Ready = func(context.Context) error { return fail } })
	if a := ask(t, "GET", url+"/readyz", ""); a.status != 200 {
		t.Errorf("ready: %d", a.status)
	}
	fail = errors.New("stopping")
	if a := ask(t, "GET", url+"/readyz", ""); a.status != 503 || a.body != "stopping\n" || a.header.Get("Retry-After") == "" {
		t.Errorf("not ready: %d %s", a.status, a.body)
	}
	if a := ask(t, "GET", url+"/healthz", ""); a.status != 200 {
		t.Errorf("alive all the same: %d", a.status)
	}
}

// stub is a store that answers as it is told to.
type stub struct {
	outcome shaper.Offered
	err     error
}

func (s stub) OfferMany(context.Context, []shaper.Spec) []shaper.Offered {
	return []shaper.Offered{s.outcome}
}
func (s stub) Find(context.Context, string, string) (shaper.Job, error) { return shaper.Job{}, s.err }

func TestStoreAway(t *testing.T) {
	away := errors.Join(shaper.ErrStore, errors.New("dial tcp 10.0.0.5:6379: secret host"))
	url := serveOn(t, stub{shaper.Offered{Err: away}, away}, nil)
	for _, method := range []string{"POST", "GET"} {
		path := jobsPath
		if method == "GET" {
			path += "/j1"
		}
		a := ask(t, method, url+path, `{"type":"x"}`)
		if a.status != 503 || a.header.Get("Retry-After") != "1" || strings.Contains(a.body, "secret") {
			t.Errorf("%s: %d %v %s", method, a.status, a.header, a.body)
		}
	}
	alone := &shaper.UnconfirmedError{Tenant: "acme", ID: "j7", Want: 2, Got: 1, Within: time.Second, Err: away}
	url = serveOn(t, stub{outcome: shaper.Offered{Err: alone}}, nil)
	if a := ask(t, "POST", url+jobsPath, `{"type":"x"}`); a.status != 503 || a.header.Get("Retry-After") != "1" || strings.Contains(a.body, "secret") ||
		!strings.Contains(a.body, "job j7 of tenant acme was stored, but 1 of 2 replicas confirmed it within 1s") {
		t.Errorf("not confirmed: %d %v %s", a.status, a.header, a.body)
	}
	full := shaper.Result{ID: "a", Status: shaper.Refused, Reason: shaper.RefusedMemory, RetryAfter: 1500 * time.Millisecond}
	url = serveOn(t, stub{outcome: shaper.Offered{Result: full}}, nil)
	if a := ask(t, "POST", url+jobsPath, `{"type":"x"}`); a.status != 503 || a.header.Get("Retry-After") != "2" || a.fields["reason"] != "store_full" {
		t.Errorf("store full: %d %v %s", a.status, a.header, a.body)
	}
	state := fmt.Errorf("enqueue: %w", &shaper.UnreadableError{Downstream: "d", Field: "schema", Value: "2.0", Err: away})
	url = serveOn(t, stub{outcome: shaper.Offered{Err: state}}, nil)
	if a := ask(t, "POST", url+jobsPath, `{"type":"x"}`); a.status != 503 || a.header.Get("Retry-After") != "1" || strings.Contains(a.body, "secret") ||
		!strings.Contains(a.body, "downstream d was written by a Jobshaper of schema") {
		t.Errorf("a newer state: %d %v %s", a.status, a.header, a.body)
	}
}

func TestLoopback(t *testing.T) {
	for _, row := range []struct {
		address string
		tokens  []string
		local   bool
		wrong   bool
	}{
		{"127.0.0.1:8080", nil, true, false},
		{"[::1]:8080", nil, true, false},
		{"localhost:8080", nil, true, false},
		{":8080", nil, false, true},
		{"0.0.0.0:8080", nil, false, true},
		{"0.0.0.0:8080", []string{"t"}, false, false},
		{"10.0.0.5:8080", nil, false, true},
		{"8080", nil, false, true},
	} {
		local, err := Loopback(t.Context(), row.address, row.tokens)
		if local != row.local || (err != nil) != row.wrong {
			t.Errorf("%s with %v: %v, %v", row.address, row.tokens, local, err)
		}
		if err != nil && !errors.Is(err, shaper.ErrInvalid) {
			t.Errorf("%s: %v is not an ErrInvalid", row.address, err)
		}
	}
}
