package target

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"go.uber.org/goleak"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

var testInfo = workers.Info{
	ID: "j-1", Tenant: "acme", Downstream: "mail", Type: "mail:send", Attempt: 3,
	Slot: time.UnixMicro(1_732_950_000_123_456),
}

// testContext returns a context as a Pool makes it for testInfo.
func testContext(t *testing.T) context.Context { return withTestInfo(t.Context()) }

func withTestInfo(ctx context.Context) context.Context { return workers.WithJob(ctx, testInfo) }

// noLeaks fails the test if it leaves a goroutine behind. Call it before anything else registers a
// cleanup.
func noLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { testenv.NoLeaks(t, before) })
}

// serve starts a downstream and a target for it.
func serve(t *testing.T, h http.HandlerFunc) (*httpTarget, *httptest.Server) {
	t.Helper()
	noLeaks(t)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return newHTTPTest(t, HTTPConfig{URL: srv.URL + "/in"}), srv
}

func newHTTPTest(t *testing.T, cfg HTTPConfig) *httpTarget {
	t.Helper()
	h, err := NewHTTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	target := h.(*httpTarget)
	t.Cleanup(target.client.CloseIdleConnections)
	return target
}

func TestHTTPSendsTheJob(t *testing.T) {
	for _, tc := range []struct{ name, payload, contentType string }{
		{"JSON", `{"to":"ann"}`, "application/json"},
		{"text", `{"to":`, "application/octet-stream"},
		{"JSON but for its encoding", "\"\xff\"", "application/octet-stream"},
		{"JSON after a byte order mark", "\ufeff{}", "application/octet-stream"}, // which RFC 8259 forbids in what is sent
		{"JSON that nobody here reads", `{"a":1,"a":"\ud83d"}`, "application/json"},
		{"nothing", "", "application/octet-stream"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got *http.Request
			var body []byte
			target, srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				got = r
				body, _ = io.ReadAll(r.Body)
				io.WriteString(w, "done")
			})
			ctx := testContext(t)
			if err := target.ProcessTask(ctx, asynq.NewTask("mail:send", []byte(tc.payload))); err != nil {
				t.Fatal(err)
			}
			srv.Close() // orders the handler's writes before our reads
			if got.Method != "POST" || got.URL.Path != "/in" || string(body) != tc.payload || got.ContentLength != int64(len(tc.payload)) {
				t.Errorf("got %s %s %q, length %d", got.Method, got.URL, body, got.ContentLength)
			}
			for name, want := range map[string]string{
				"Shaper-Job-Id": "j-1", "Shaper-Tenant": "acme", "Shaper-Type": "mail:send", "Shaper-Attempt": "3",
				"Shaper-Slot": "1732950000123456", "Content-Type": tc.contentType, "User-Agent": "jobshaper",
			} {
				if v := got.Header.Values(name); len(v) != 1 || v[0] != want {
					t.Errorf("%s = %q, want %q", name, v, want)
				}
			}
			if r := workers.ResultFrom(ctx); string(r) != "done" {
				t.Errorf("result %q", r)
			}
		})
	}
}

func TestHTTPExtraHeaders(t *testing.T) {
	var got http.Header
	var host string
	_, srv := serve(t, func(w http.ResponseWriter, r *http.Request) { got, host = r.Header, r.Host })
	target := newHTTPTest(t, HTTPConfig{
		URL:     strings.Replace(srv.URL, "http://", "http://ann:pw@", 1),
		Headers: map[string]string{"x-key": "k", "content-type": "text/plain", "Host": "inner.example"},
	})
	if err := target.ProcessTask(testContext(t), asynq.NewTask("x", []byte("{}"))); err != nil {
		t.Fatal(err)
	}
	if got.Get("X-Key") != "k" || got.Get("Content-Type") != "text/plain" || host != "inner.example" || got.Get("Authorization") == "" {
		t.Errorf("host %q, headers %v", host, got)
	}
}

func TestHTTPDoesNotFollowRedirects(t *testing.T) {
	var visited atomic.Bool
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visited.Store(true) }))
	t.Cleanup(inner.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		target, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inner.URL, status) })
		err := target.ProcessTask(testContext(t), asynq.NewTask("x", []byte("{}")))
		if !errors.Is(err, asynq.SkipRetry) || visited.Load() {
			t.Errorf("%d: %v, visited %v", status, err, visited.Load())
		}
	}
}

// The environment's proxy is read once per process and never used for loopback addresses, so a
// request would not show whether it is obeyed; the transport's own setting does.
func TestHTTPIgnoresProxyOfEnvironment(t *testing.T) {
	target := newHTTPTest(t, HTTPConfig{URL: "http://example.com"})
	if target.client.Transport.(*http.Transport).Proxy != nil {
		t.Error("a proxy function is set")
	}
}

func TestHTTPReusesConnections(t *testing.T) {
	peers := make(map[string]bool)
	target, srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		peers[r.RemoteAddr] = true
		w.WriteHeader(500 + len(peers)%2)
		w.Write(make([]byte, maxBody)) // as long as may be, and still read to its end
	})
	for range 5 {
		target.ProcessTask(testContext(t), asynq.NewTask("x", []byte("{}")))
	}
	srv.Close()
	if len(peers) != 1 {
		t.Errorf("5 jobs in a row used %d connections", len(peers))
	}
}

func TestHTTPHugeBody(t *testing.T) {
	served := make(chan int, 1)
	target, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, block := 0, bytes.Repeat([]byte("x"), 1<<20)
		for range 1 << 10 { // 1 GiB, if anybody takes it
			m, err := w.Write(block)
			n += m
			if err != nil {
				break
			}
		}
		served <- n
	})
	ctx := testContext(t)
	if err := target.ProcessTask(ctx, asynq.NewTask("x", nil)); err != nil {
		t.Fatal(err)
	}
	if n := <-served; n >= 1<<30 {
		t.Errorf("read all of %d bytes", n)
	}
	if n := len(workers.ResultFrom(ctx)); n != workers.MaxResult {
		t.Errorf("kept %d bytes", n)
	}
}

func TestHTTPErrorTextIsClean(t *testing.T) {
	target, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(500)
		io.WriteString(w, "bad\r\nlevel=INFO msg=forged\x1b[2J\x00\xff\xfe"+strings.Repeat("é", 5000))
	})
	err := target.ProcessTask(testContext(t), asynq.NewTask("x", nil))
	text := err.Error()
	if !strings.Contains(text, "500 Internal Server Error: bad level=INFO msg=forged \uFFFDé") {
		t.Errorf("got %q", text)
	}
	if !utf8.ValidString(text) || strings.ContainsAny(text, "\r\n\x1b\x00") || len(text) > 500 {
		t.Errorf("unfit text of %d bytes: %q", len(text), text)
	}
}

func TestHTTPEndsWithItsContext(t *testing.T) {
	for _, cause := range []error{shaper.ErrLeaseLost, shaper.ErrCancelled, context.DeadlineExceeded} {
		reached := make(chan struct{})
		target, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			close(reached)
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancelCause(testContext(t))
		go func() { <-reached; cancel(cause) }()
		err := target.ProcessTask(ctx, asynq.NewTask("x", []byte("{}")))
		if !errors.Is(err, cause) || errors.Is(err, asynq.SkipRetry) {
			t.Errorf("cause %v: got %v", cause, err)
		}
	}
}

func TestHTTPUnreachable(t *testing.T) {
	_, srv := serve(t, nil)
	srv.Close()
	target := newHTTPTest(t, HTTPConfig{URL: srv.URL + "/?token=s3cret"})
	err := target.ProcessTask(testContext(t), asynq.NewTask("x", nil))
	if err == nil || errors.Is(err, asynq.SkipRetry) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
}

func TestHTTPWantsAJob(t *testing.T) {
	target := newHTTPTest(t, HTTPConfig{URL: "http://127.0.0.1:1"})
	if err := target.ProcessTask(t.Context(), asynq.NewTask("x", nil)); !errors.Is(err, errNoJob) {
		t.Errorf("got %v", err)
	}
}

func TestHTTPConfig(t *testing.T) {
	bad := func(cfg HTTPConfig, field string) {
		t.Helper()
		_, err := NewHTTP(cfg)
		var fe *shaper.FieldError
		if !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("%+v: got %v, want an error of %s", cfg, err, field)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("error shows a secret: %v", err)
		}
	}
	for _, u := range []string{
		"", "example.com", "//example.com", "/in", "ftp://example.com", "file:///etc/passwd", "http://", "http://:80/",
		"http://example.com:0", "http://example.com:99999", "http://exa mple.com", "http:example.com",
		"http://{payload.host}/", "http://example.com/{id}", "ftp://ann:s3cret@example.com/?k=s3cret",
	} {
		bad(HTTPConfig{URL: u}, "target.http")
	}
	for name, value := range map[string]string{
		"": "x", "a b": "x", "X-Key": "s3cret\r\nX: y", "X": "\x00", "Shaper-Tenant": "x", "shaper-other": "x",
		"content-length": "1", "Connection": "close", "Idempotency-Key": "1",
	} {
		bad(HTTPConfig{URL: "http://example.com", Headers: map[string]string{name: value}}, "target.headers")
	}
	for _, u := range []string{"http://example.com", "HTTPS://example.com/x?y=z", "http://[::1]:8080/", "http://ann:pw@example.com"} {
		if _, err := NewHTTP(HTTPConfig{URL: u}); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
}
