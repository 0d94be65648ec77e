package redisproc

import (
	"io"
	"strings"
	"sync"
)

// tailSize is how much of a server's output is kept for error messages.
const tailSize = 1024

// tail is a writer that remembers the last tailSize bytes and hands everything
// on to next, if there is one.
type tail struct {
	next io.Writer

	mu   sync.Mutex
	last []byte // guarded by mu
}

// Write never fails: a full log disk must not end the server by SIGPIPE.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if extra := len(t.last) - tailSize; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
	if t.next != nil {
		_, _ = t.next.Write(b)
	}
	return len(b), nil
}

// suffix is the remembered output as the end of an error message, or nothing.
func (t *tail) suffix() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.last))
	if text == "" {
		return ""
	}
	return "; its last words:\n" + text
}
