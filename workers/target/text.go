package target

import (
	"errors"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hibiken/asynq"
)

// errNoJob refuses work that did not come through the gate: a target starts only what owns a slot.
var errNoJob = errors.New("a target runs only inside a workers.Pool")

// hopelessError says that no attempt of the job can succeed. It wraps asynq.SkipRetry, whose own
// text would tell a reader nothing.
type hopelessError struct{ text string }

func (e *hopelessError) Error() string { return e.text }
func (e *hopelessError) Unwrap() error { return asynq.SkipRetry }

// escapeRE matches terminal escape sequences: CSI, OSC and other strings that have an end, and
// two-byte ones. A string without an end loses only its introducer, or it would swallow the message
// behind it.
var escapeRE = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]`)

// oneLine makes foreign bytes fit for a log, a terminal and Redis: valid UTF-8 on one line.
// Terminal escapes are dropped, invalid bytes become U+FFFD, and each run of blanks, line ends and
// anything else that does not print becomes one blank.
func oneLine(b []byte) string {
	s := strings.ToValidUTF8(string(escapeRE.ReplaceAll(b, nil)), "\uFFFD")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return r == ' ' || !unicode.IsPrint(r)
	}), " ")
}

// cutHead keeps the start of s, at most n bytes and the ellipsis.
func cutHead(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// cutTail keeps the end of s, at most n bytes and the ellipsis.
func cutTail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	i := len(s) - n
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return "…" + s[i:]
}

// headBuffer is a Writer that keeps the first max bytes, and accepts and forgets the rest.
type headBuffer struct {
	max int
	buf []byte
}

func (h *headBuffer) Write(p []byte) (int, error) {
	h.buf = append(h.buf, p[:min(len(p), h.max-len(h.buf))]...)
	return len(p), nil
}

// tailBuffer is a Writer that keeps the last max bytes; it never holds more than three times as
// many.
type tailBuffer struct {
	max int
	buf []byte
	cut bool // something was forgotten
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p[max(0, len(p)-t.max):]...)
	t.cut = t.cut || len(p) > t.max
	if len(t.buf) > 2*t.max { // rarely, so that many small writes do not each move the whole tail
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.max:]...)
		t.cut = true
	}
	return len(p), nil
}

// text returns the tail as one line of at most max bytes, with an ellipsis in front where something
// is missing.
func (t *tailBuffer) text() string {
	s := oneLine(t.buf)
	if len(s) <= t.max && t.cut {
		return "…" + s
	}
	return cutTail(s, t.max)
}
