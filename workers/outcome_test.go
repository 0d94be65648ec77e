package workers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/shaper"
)

func TestOutcome(t *testing.T) {
	grant := &queue.Grant{Timeout: time.Minute, Charged: 1, Backoff: shaper.Backoff{Min: time.Second, Max: time.Minute}}
	failed := errors.New("failed")
	for _, tc := range []struct {
		name  string
		cause error // why the handler's context has ended
		err   error // what it returned
		want  queue.Finish
	}{
		{"success", nil, nil, queue.Finish{Ending: queue.EndOK, Text: "result"}},
		{"success after the end of its time", errTimeout, nil, queue.Finish{Ending: queue.EndOK, Text: "result"}},
		{"success while stopping", shaper.ErrStopping, nil, queue.Finish{Ending: queue.EndOK, Text: "result"}},
		{"asynq's way to be left alone", nil, asynq.RevokeTask, queue.Finish{Ending: queue.EndOK, Text: "result"}},
		{"failure", nil, failed, queue.Finish{Ending: queue.EndError, Delay: time.Second, Text: "failed"}},
		{"failure after the end of its time", errTimeout, failed,
			queue.Finish{Ending: queue.EndError, Delay: time.Second, Text: "timed out after 1m0s: failed"}},
		{"failure while stopping", shaper.ErrStopping, failed, queue.Finish{Ending: queue.EndBack}},
		{"no use in trying again", nil, fmt.Errorf("bad input: %w", asynq.SkipRetry),
			queue.Finish{Ending: queue.EndDead, Text: "bad input: " + asynq.SkipRetry.Error()}},
		{"throttled", nil, fmt.Errorf("call: %w", Throttled(time.Minute, failed)),
			queue.Finish{Ending: queue.EndThrottled, Delay: time.Minute, Text: "call: throttled for 1m0s: failed"}},
		{"throttled for no time", nil, Throttled(0, nil),
			queue.Finish{Ending: queue.EndThrottled, Delay: time.Second, Text: "throttled for 0s"}},
		{"throttled for years", nil, Throttled(math.MaxInt64, nil),
			queue.Finish{Ending: queue.EndThrottled, Delay: 24 * time.Hour, Text: "throttled for 2562047h47m16.854775807s"}},
		{"throttled for less than none", nil, Throttled(-time.Hour, nil),
			queue.Finish{Ending: queue.EndThrottled, Delay: time.Second, Text: "throttled for -1h0m0s"}},
		{"the downstream throttled", nil, &ThrottledError{After: time.Minute, Downstream: true},
			queue.Finish{Ending: queue.EndThrottledAll, Delay: time.Minute, Text: "throttled for 1m0s"}},
		{"bytes that are no text", nil, errors.New("\xff\xfe\x1b[31m no\ttext\n"),
			queue.Finish{Ending: queue.EndError, Delay: time.Second, Text: "\uFFFD[31m no\ttext\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, end := context.WithCancelCause(WithJob(context.Background(), Info{ID: "j-1", Tenant: "acme"}))
			defer end(nil)
			SetResult(ctx, []byte("result"))
			if tc.cause != nil {
				end(tc.cause)
			}
			if got := outcome(ctx, grant, tc.err); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestLongErrorsAreCut(t *testing.T) {
	text := strings.Repeat("é", maxErrorText) // the limit falls between its two bytes, or after them
	for _, s := range []string{text, "x" + text} {
		if got := clean(s); len(got) > maxErrorText+len("…") || !utf8.ValidString(got) || !strings.HasSuffix(got, "é…") {
			t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-8:])
		}
	}
}

func TestBackoff(t *testing.T) {
	b := shaper.Backoff{Min: time.Second, Max: 5 * time.Minute}
	const almost1 = 1 - 1e-12
	for _, tc := range []struct {
		n         int
		low, high time.Duration
	}{
		{1, time.Second, time.Second},
		{2, time.Second, 2 * time.Second},
		{5, time.Second, 16 * time.Second},
		{9, time.Second, 256 * time.Second},
		{10, time.Second, 5 * time.Minute},
		{64, time.Second, 5 * time.Minute}, // 2⁶³ s are no time.Duration
		{1000, time.Second, 5 * time.Minute},
	} {
		low, high := backoff(b, tc.n, 0), backoff(b, tc.n, almost1)
		if low != tc.low || high > tc.high || high < tc.high-time.Millisecond {
			t.Errorf("attempt %d: %v to %v, want %v to %v", tc.n, low, high, tc.low, tc.high)
		}
	}
}
