package cliutil

import (
	"encoding/json"
	"io"
	"sync"
)

// JSONLines prints values as JSON, one object per line, each in a single Write, so
// a reader of a pipe gets whole lines as they come. It may be used from
// several goroutines.
type JSONLines struct {
	mu  sync.Mutex
	enc *json.Encoder // guarded by mu
}

// NewJSONLines returns a printer to w.
func NewJSONLines(w io.Writer) *JSONLines {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // for eyes and jq, not for a web page
	return &JSONLines{enc: enc}
}

// Print prints one value.
func (l *JSONLines) Print(v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enc.Encode(v)
}
