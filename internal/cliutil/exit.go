package cliutil

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"
)

// Exit codes, the named ones as in sysexits.h.
const (
	ExitOK          = 0
	ExitFailed      = 1  // the program worked, but what it reports on failed (a job, a check)
	ExitUsage       = 64 // the command line is wrong
	ExitDataErr     = 65 // the input is wrong, or in conflict with what is there
	ExitUnavailable = 69 // the store cannot be reached
	ExitIO          = 74 // the output cannot be written
	ExitTempFail    = 75 // refused now, worth another try later
	ExitConfig      = 78 // the configuration is wrong

	exitPipe = 128 + 13 // ended by SIGPIPE, as a shell reports it
)

// Exit is an error that chooses the program's exit code.
type Exit struct {
	Code int
	Err  error // what to say on stderr; nil where everything has been said
}

func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Exit) Unwrap() error { return e.Err }

// ExitCode makes Exit a cli.ExitCoder.
func (e *Exit) ExitCode() int { return e.Code }

// Exitf returns an *Exit with a message, formatted as by fmt.Errorf.
func Exitf(code int, format string, args ...any) error {
	return &Exit{Code: code, Err: fmt.Errorf(format, args...)}
}

// Usagef returns the error of a wrong command line.
func Usagef(format string, args ...any) error { return Exitf(ExitUsage, format, args...) }

// codeOf is the exit code for an error. A cli.ExitCoder counts only at the top:
// deep inside it may be the *exec.ExitError of some other program.
func codeOf(err error) int {
	var exit *Exit
	if err == nil {
		return ExitOK
	}
	if errors.As(err, &exit) {
		return exit.Code
	}
	if coder, ok := err.(cli.ExitCoder); ok {
		return coder.ExitCode()
	}
	return ExitFailed
}

// report prints an error on stderr and returns its exit code.
func report(program string, err error, stderr io.Writer) int {
	if exit := (*Exit)(nil); errors.As(err, &exit) && exit.Err == nil {
		return exit.Code
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", program, Printable(err.Error())) // it may quote what others wrote
	}
	return codeOf(err)
}
