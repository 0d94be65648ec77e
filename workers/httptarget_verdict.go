package workers

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	minRetryAfter = time.Second    // what "0", or a time that has passed, is taken for
	maxRetryAfter = 24 * time.Hour // more is taken for a mistake: a tenant must not sleep for years
)

// httpVerdict turns a response into what became of the job; text describes it for people.
func httpVerdict(status int, h http.Header, now time.Time, text string) error {
	if status >= 200 && status < 300 {
		return nil
	}
	err := errors.New(text)
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after, ok := retryAfter(h, now); ok {
			return Throttled(after, err)
		}
		return err
	case http.StatusRequestTimeout, http.StatusTooEarly:
		return err
	}
	if status >= 300 && status < 500 { // 3xx too: redirects are not followed
		return &hopelessError{text}
	}
	return err
}

// retryAfter reads Retry-After, a number of seconds or an HTTP date, within minRetryAfter and maxRetryAfter;
// ok is false where it is absent or neither. A date counts from the response's own Date where there is one,
// so that a clock set differently on the two sides does no harm, else from now.
func retryAfter(h http.Header, now time.Time) (after time.Duration, ok bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	clamp := func(d time.Duration) time.Duration { return min(max(d, minRetryAfter), maxRetryAfter) }

	seconds, err := strconv.ParseInt(value, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) { // out of range, ParseInt returns the nearest number it has
		limit := int64(maxRetryAfter / time.Second)
		return clamp(time.Duration(min(max(seconds, 0), limit)) * time.Second), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return clamp(at.Sub(now)), true
}
