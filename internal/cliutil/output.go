package cliutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// Output is the stdout of a command. It remembers the first Write that failed, so that no failure
// goes unnoticed, and then ends the command's context: output that nobody can read need not be
// made. It may be used from several goroutines.
type Output struct {
	w   io.Writer
	end context.CancelFunc

	mu  sync.Mutex
	err error // of the first Write that failed; guarded by mu
}

// Unwrap returns what it writes to, to ask whether that is a terminal.
func (o *Output) Unwrap() io.Writer { return o.w }

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	if err != nil {
		o.err = err
		o.end()
	}
	return n, err
}

// failure returns the error of a command whose output was lost, or else err. If the reader has
// closed the pipe, it has all that it wants, as in `| head -1`: then there is no message, and the
// exit code is the one that a shell reports for other programs that a closed pipe ended.
func (o *Output) failure(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err == nil:
		return err
	case errors.Is(o.err, syscall.EPIPE), errors.Is(o.err, io.ErrClosedPipe):
		return &Exit{Code: exitPipe}
	}
	return &Exit{Code: ExitIO, Err: fmt.Errorf("the output cannot be written: %w: what the command did is not undone", o.err)}
}
