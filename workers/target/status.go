package target

import (
	"errors"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/workers"
)

// responseError turns a response into what became of the job; text describes it for people.
func responseError(status int, h http.Header, now time.Time, text string) error {
	if status >= 200 && status < 300 {
		return nil
	}
	err := errors.New(text)
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after, ok := retryAfter(h, now); ok {
			return workers.Throttled(after, err)
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

// secondsRE matches what Retry-After says in seconds. RFC 9110 has whole ones only; servers send
// 1.5 and -1 all the same.
var secondsRE = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?$`)

// retryAfter reads Retry-After, a number of seconds or an HTTP date in one of its three forms; ok
// is false where there is none. It is at least a second, since "0" and a time that has passed still
// ask to slow down, and at most workers.MaxThrottle. What is neither a number nor a date counts as
// a second, too. A date counts from the response's own Date where there is one, so that a clock set
// differently on the two sides does no harm, else from now.
func retryAfter(h http.Header, now time.Time) (after time.Duration, ok bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	switch at, err := http.ParseTime(value); {
	case value == "":
		return 0, false
	case secondsRE.MatchString(value):
		seconds, _ := strconv.ParseFloat(value, 64) // one that is out of range is infinite
		after = time.Duration(math.Round(min(max(seconds, 0), workers.MaxThrottle.Seconds()) * float64(time.Second)))
	case err == nil:
		if sent, err := http.ParseTime(h.Get("Date")); err == nil {
			now = sent
		}
		after = at.Sub(now)
	}
	return min(max(after, time.Second), workers.MaxThrottle), true
}
