package target

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// HTTPConfig says where an HTTP target sends its jobs.
type HTTPConfig struct {
	// URL is an absolute http or https address. It is the operator's and the same for every job: no
	// part of it comes from a payload, so a producer cannot aim the worker at another host. A brace
	// in it is an error, lest it be taken for a placeholder. User and password in it become basic
	// authentication.
	URL string

	// Headers are sent with every job. They may replace Content-Type and User-Agent, but not the
	// Shaper-* headers nor those that belong to the connection.
	Headers map[string]string
}

const (
	maxBody    = 64 << 10 // how much of a response is read
	maxSnippet = 300      // how much of it an error text repeats
)

// httpTarget is the handler behind NewHTTP.
type httpTarget struct {
	client    *http.Client
	transport *http.Transport // of client
	url       *url.URL
	address   string      // host:port of url; no port = that of its scheme
	header    http.Header // cloned for each job
	host      string      // the Host header, where configured
	now       func() time.Time
}

// NewHTTP returns a handler that posts each job's payload to cfg.URL, or a *shaper.FieldError.
//
// A request carries Shaper-Job-Id, Shaper-Tenant, Shaper-Type, Shaper-Attempt, Shaper-Slot (µs
// since the epoch) and a Content-Type: application/json where the payload is JSON, else
// application/octet-stream.
//
// The status decides: 2xx is success, and the start of the body becomes the job's result. 429 and
// 503 with a Retry-After are a *workers.ThrottledError, for as long as it says in seconds (1.5 too)
// or by an HTTP date, within 1s and 24h, and for 1s where it cannot be read. 408, 425, 429 and 5xx
// are errors to be retried, as is a failure to reach the server. Anything else wraps
// asynq.SkipRetry: redirects, which are never followed, and other 4xx.
//
// The handler is a workers.Preparer: each of a pool's places has a connection of its own, which is
// made before a slot is asked for, and again as soon as the server has closed it. A start is the
// first byte of its request. One that has no connection at its slot makes it then, and is late by as
// much.
//
// The job's context is the only time limit. Proxies named in the environment are ignored. One job
// is one request: nothing that the server may have seen is sent twice.
func NewHTTP(cfg HTTPConfig) (asynq.Handler, error) {
	u, err := parseTargetURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	client, transport := newTargetClient()
	t := &httpTarget{client: client, transport: transport, url: u, address: net.JoinHostPort(u.Hostname(), u.Port()), now: time.Now, header: http.Header{
		"User-Agent": {"jobshaper"},
	}}
	for name, value := range cfg.Headers {
		if err := validHeader(name, value); err != nil {
			return nil, err
		}
		if key := textproto.CanonicalMIMEHeaderKey(name); key == "Host" {
			t.host = value // net/http takes it from Request.Host only
		} else {
			t.header.Set(key, value)
		}
	}
	if user := u.User; user != nil && t.header.Get("Authorization") == "" {
		password, _ := user.Password()
		t.header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	return t, nil
}

// newTargetClient returns a client that talks to one host and to nobody else.
func newTargetClient() (*http.Client, *http.Transport) {
	// HTTP/2 is off: its transport repeats refused requests by itself, up to seconds later, outside
	// the job's slot.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		Proxy:                  nil, // not even from the environment
		DialContext:            noted((&net.Dialer{KeepAlive: 15 * time.Second}).DialContext),
		Protocols:              &protocols,
		DisableCompression:     true, // what is read of a body is what was sent: no decompression bombs
		MaxResponseHeaderBytes: maxBody,
		MaxIdleConnsPerHost:    256, // as many as a busy pool runs at once; unused ones soon close
		IdleConnTimeout:        maxIdle,
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, transport
}

// ProcessTask posts the payload of task.
func (t *httpTarget) ProcessTask(ctx context.Context, task *asynq.Task) error {
	info, ok := workers.JobFrom(ctx)
	if !ok {
		return errNoJob
	}
	resp, err := t.client.Do(t.request(ctx, info, task.Payload()))
	if err != nil {
		return t.failed(ctx, err)
	}
	return t.answer(ctx, resp)
}

// answer reads a response, and turns it into what became of the job.
func (t *httpTarget) answer(ctx context.Context, resp *http.Response) error {
	defer resp.Body.Close()
	body := readBody(resp)
	text := fmt.Sprintf("POST %s: %d %s", t.url.Host, resp.StatusCode, http.StatusText(resp.StatusCode))
	if snippet := cutHead(oneLine(body), maxSnippet); snippet != "" {
		text += ": " + snippet
	}
	err := responseError(resp.StatusCode, resp.Header, t.now(), text)
	if err == nil && len(body) > 0 {
		workers.SetResult(ctx, body)
	}
	return err
}

// request builds the POST of one job. The URL was parsed once; here only headers are copied.
func (t *httpTarget) request(ctx context.Context, info workers.Info, payload []byte) *http.Request {
	h := t.header.Clone()
	h["Shaper-Job-Id"] = []string{info.ID}
	h["Shaper-Tenant"] = []string{info.Tenant}
	h["Shaper-Type"] = []string{info.Type}
	h["Shaper-Attempt"] = []string{strconv.Itoa(info.Attempt)}
	h["Shaper-Slot"] = []string{strconv.FormatInt(info.Slot.UnixMicro(), 10)}
	if _, set := h["Content-Type"]; !set {
		h["Content-Type"] = []string{contentType(payload)}
	}
	req := &http.Request{Method: http.MethodPost, URL: t.url, Host: t.host, Header: h, Body: http.NoBody}
	if len(payload) > 0 {
		// GetBody lets the transport take a fresh connection where a kept one proves dead before
		// the first byte.
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(payload)), nil }
		req.Body, _ = req.GetBody()
		req.ContentLength = int64(len(payload))
	}
	return req.WithContext(ctx)
}

// contentType names what payload is.
func contentType(payload []byte) string {
	if json.Valid(payload) && utf8.Valid(payload) { // JSON is UTF-8 by definition; json.Valid does not look
		return "application/json"
	}
	return "application/octet-stream"
}

// failed turns an error of the client into ours: the reason, without the URL, whose query may hold
// a secret.
func (t *httpTarget) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("POST %s: %w", t.url.Host, context.Cause(ctx))
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return fmt.Errorf("POST %s: %s", t.url.Host, cutHead(oneLine([]byte(err.Error())), maxSnippet))
}

// readBody returns the body of resp up to maxBody. A body that ends there leaves its connection fit
// for the next job; a longer one costs the connection, which is cheaper than reading on. A body
// that breaks off changes nothing, for the status has already said how the job went.
func readBody(resp *http.Response) []byte {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil // not a body but an open connection: a read could wait for ever
	}
	// One byte more than is kept, so that a body of exactly maxBody is read to its end.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	return body[:min(len(body), maxBody)]
}

// parseTargetURL returns the address of an HTTP target, or a *shaper.FieldError.
func parseTargetURL(raw string) (*url.URL, error) {
	bad := func(want string) error {
		return &shaper.FieldError{Field: "target.http", Value: hideSecrets(raw), Want: want}
	}
	if strings.Contains(raw, "{") {
		return nil, bad("a URL without placeholders: it is the same for every job")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, bad("an absolute http or https URL")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, bad("a port from 1 to 65535")
		}
	}
	return u, nil
}

// hideSecrets returns a URL as a message may show it: without user, password and query.
func hideSecrets(raw string) string {
	raw, _, _ = strings.Cut(raw, "?")
	if at := strings.LastIndex(raw, "@"); at >= 0 {
		raw = "***" + raw[at:]
	}
	return cutHead(raw, 120)
}

var (
	headerNameRE  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	headerValueRE = regexp.MustCompile(`^[^\x00-\x08\x0a-\x1f\x7f]*$`)
)

// validHeader checks one configured header. Its value may be a secret and is not repeated in the
// error.
func validHeader(name, value string) error {
	bad := func(want string) error {
		return &shaper.FieldError{Field: "target.headers", Value: cutHead(name, 80), Want: want}
	}
	if !headerNameRE.MatchString(name) {
		return bad("a header name")
	}
	if !headerValueRE.MatchString(value) {
		return bad("a value without control characters")
	}
	switch key := textproto.CanonicalMIMEHeaderKey(name); {
	case strings.HasPrefix(key, "Shaper-"):
		return bad("no Shaper-* header: they describe the job")
	case key == "Connection", key == "Content-Length", key == "Transfer-Encoding", key == "Trailer",
		key == "Te", key == "Upgrade", key == "Expect", key == "Keep-Alive", key == "Proxy-Connection":
		return bad("no header that belongs to the connection")
	case key == "Idempotency-Key", key == "X-Idempotency-Key":
		// One value for all jobs would be wrong, and net/http repeats requests that carry one.
		return bad("no idempotency key: Shaper-Job-Id is one")
	}
	return nil
}
