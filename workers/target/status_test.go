package target

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// What a status means, and with it what the pool will do.
func TestHTTPStatus(t *testing.T) {
	for _, tc := range []struct {
		status     int
		retryAfter string
		want       string
	}{
		{200, "", ok}, {201, "", ok}, {204, "", ok}, {299, "", ok},
		{101, "", failed},
		{301, "", hopeless}, {302, "", hopeless}, {304, "", hopeless}, {307, "", hopeless}, {308, "", hopeless},
		{400, "", hopeless}, {401, "", hopeless}, {404, "", hopeless}, {409, "", hopeless}, {410, "", hopeless}, {422, "", hopeless}, {499, "", hopeless},
		{408, "", failed}, {425, "", failed}, {500, "", failed}, {501, "", failed}, {502, "", failed}, {504, "", failed}, {599, "", failed},
		{429, "", failed}, {503, "", failed}, // without a time, the job's own backoff serves
		{429, "7", throttled}, {503, "7", throttled}, {503, "7.0", throttled},
		{500, "7", failed}, {404, "7", hopeless}, {200, "7", ok}, // elsewhere Retry-After means nothing to us
	} {
		target, srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if tc.retryAfter != "" {
				w.Header().Set("Retry-After", tc.retryAfter)
			}
			if tc.status == 101 { // by hand: the server sends 101 as a preface only
				conn, _, _ := w.(http.Hijacker).Hijack()
				t.Cleanup(func() { conn.Close() }) // open until then: nobody may wait for a body
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				return
			}
			w.WriteHeader(tc.status)
		})
		err := target.ProcessTask(testContext(t), asynq.NewTask("x", nil))
		target.client.CloseIdleConnections()
		srv.Close()

		got := meaningOf(t, err, 7*time.Second)
		if got != tc.want {
			t.Errorf("%d with Retry-After %q: %s (%v), want %s", tc.status, tc.retryAfter, got, err, tc.want)
		}
		if err != nil && !strings.Contains(err.Error(), http.StatusText(tc.status)) {
			t.Errorf("%d: error does not say so: %v", tc.status, err)
		}
	}
}

func TestHTTPRetryAfter(t *testing.T) {
	now := time.Date(2024, 11, 30, 7, 0, 0, 500_000_000, time.UTC)
	for _, tc := range []struct {
		value, date string
		want        time.Duration // 0: there is none
	}{
		{"1", "", time.Second},
		{" 120 ", "", 2 * time.Minute},
		{"0", "", time.Second}, // "at once" is still a request to slow down
		{"-5", "", time.Second},
		{"86400", "", 24 * time.Hour},
		{"86401", "", 24 * time.Hour},
		{"99999999999999999999999", "", 24 * time.Hour},
		{"-99999999999999999999999", "", time.Second},
		{"Sat, 30 Nov 2024 07:00:10 GMT", "", 9500 * time.Millisecond},
		{"Saturday, 30-Nov-24 07:00:10 GMT", "", 9500 * time.Millisecond}, // the obsolete forms count too
		{"Sat Nov 30 07:00:10 2024", "", 9500 * time.Millisecond},
		{"Sat, 30 Nov 2024 06:00:00 GMT", "", time.Second}, // past
		{"Sat, 30 Nov 2024 07:00:00 GMT", "", time.Second},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", 24 * time.Hour},
		// The server's clock is an hour behind ours; what it means is ten seconds.
		{"Sat, 30 Nov 2024 06:00:10 GMT", "Sat, 30 Nov 2024 06:00:00 GMT", 10 * time.Second},
		{"Sat, 30 Nov 2024 07:00:10 GMT", "yesterday", 9500 * time.Millisecond},
		{"", "", 0},
		{"1.5", "", 1500 * time.Millisecond},
		{"1.000001", "", 1_000_001 * time.Microsecond},
		{"0.2", "", time.Second},
		{"-1.5", "", time.Second},
		{"+3", "", 3 * time.Second},
		{"007", "", 7 * time.Second},
		{"86399.5", "", 24*time.Hour - 500*time.Millisecond},
		{"86400.5", "", 24 * time.Hour},
		{strings.Repeat("9", 400) + ".5", "", 24 * time.Hour},
		{"-" + strings.Repeat("9", 400), "", time.Second},
		// What cannot be read still asks to slow down.
		{"5s", "", time.Second},
		{"1,5", "", time.Second},
		{"1.", "", time.Second},
		{".5", "", time.Second},
		{"1e9", "", time.Second},
		{"NaN", "", time.Second},
		{"Inf", "", time.Second},
		{"0x10", "", time.Second},
		{"1_000", "", time.Second},
		{"12, 13", "", time.Second},
		{"soon", "", time.Second},
		{"Sat, 30 Nov 2024 07:00:10 +0100", "", time.Second},
		{"2024-11-30T07:00:10Z", "", time.Second},
	} {
		h := http.Header{}
		h.Set("Retry-After", tc.value)
		h.Set("Date", tc.date)
		got, ok := retryAfter(h, now)
		if got != tc.want || ok != (tc.want != 0) {
			t.Errorf("Retry-After %q, Date %q: %v %v, want %v", tc.value, tc.date, got, ok, tc.want)
		}
	}
}
