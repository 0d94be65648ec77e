package cmdline

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/jobshaper/jobshaper/internal/cliutil"
)

// NewLogger returns a logger for --log-format: "text", for people, or "json".
func NewLogger(w io.Writer, format string, level slog.Level) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(NewConciseHandler(w, level)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})), nil
	}
	return nil, cliutil.Usagef("--log-format %q: want text or json", format)
}

// conciseHandler prints "15:04:05.000 WARN  message key=value". The attributes are
// slog.TextHandler's work: it writes them, and nothing else, to a buffer that all handlers of a
// tree share.
type conciseHandler struct {
	attrs slog.Handler
	out   *conciseOutput
}

type conciseOutput struct {
	mu   sync.Mutex
	w    io.Writer
	text bytes.Buffer // what attrs writes
}

// NewConciseHandler returns a handler for people who watch a terminal.
func NewConciseHandler(w io.Writer, level slog.Level) slog.Handler {
	out := &conciseOutput{w: w}
	return &conciseHandler{out: out, attrs: slog.NewTextHandler(&out.text, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{}
			}
			return a
		},
	})}
}

func (h *conciseHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.attrs.Enabled(ctx, l)
}

func (h *conciseHandler) Handle(ctx context.Context, r slog.Record) error {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.text.Reset()
	if err := h.attrs.Handle(ctx, r); err != nil {
		return err
	}
	line := make([]byte, 0, 128)
	line = r.Time.AppendFormat(line, "15:04:05.000 ")
	line = append(line, (r.Level.String() + "      ")[:6]...)
	line = append(line, strings.Join(strings.FieldsFunc(cliutil.Printable(r.Message), isLineEnd), " ")...)
	if attrs := h.out.text.Bytes(); len(attrs) > 1 { // more than a line end
		line = append(append(line, "  "...), attrs...)
	} else {
		line = append(line, '\n')
	}
	_, err := h.out.w.Write(line)
	return err
}

// isLineEnd reports whether r would begin a line, which a log line must not.
func isLineEnd(r rune) bool { return r == '\n' }

func (h *conciseHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &conciseHandler{h.attrs.WithAttrs(attrs), h.out}
}

func (h *conciseHandler) WithGroup(name string) slog.Handler {
	return &conciseHandler{h.attrs.WithGroup(name), h.out}
}
