package embedded

import (
	"bytes"
	"log/slog"
)

// maxLine is how much of a line is held back while its end is missing.
const maxLine = 4096

// lineLog is a writer that logs each line at debug level. It has one writer at a
// time: the server's output.
type lineLog struct {
	log  *slog.Logger
	rest []byte // a line that has not ended yet
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, ended := bytes.Cut(l.rest, []byte("\n"))
		if !ended && len(l.rest) < maxLine {
			return len(b), nil
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.log.Debug("redis-server", "line", string(line))
		}
		l.rest = append(l.rest[:0], rest...)
	}
}
