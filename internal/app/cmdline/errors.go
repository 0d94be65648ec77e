package cmdline

import (
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/shaper"
)

// Action makes a command's action choose the exit code for its error: see Classify.
func Action(f func(*cli.Context) error) cli.ActionFunc {
	return func(c *cli.Context) error { return Classify(f(c)) }
}

// Classify gives an error of the packages below its exit code: 65 for input that cannot be used and
// names that were never seen, 69 for a store that cannot be reached. An error that has chosen its
// code keeps it, and all others get 1.
//
// A flag's value that is not of its kind (no duration, no rate) is found earlier, and gets 64; one
// that is, but is out of range or not a name, gets 65, as it would in a batch file.
func Classify(err error) error {
	var chosen *cliutil.Exit
	var unseen *shaper.UnseenError
	switch {
	case err == nil, errors.As(err, &chosen):
		return err
	case errors.Is(err, shaper.ErrInvalid), errors.As(err, &unseen), errors.Is(err, buckets.ErrParameter), errors.Is(err, buckets.ErrKey):
		return &cliutil.Exit{Code: cliutil.ExitDataErr, Err: err}
	case errors.Is(err, shaper.ErrStore), errors.Is(err, buckets.ErrStore):
		return &cliutil.Exit{Code: cliutil.ExitUnavailable, Err: err}
	}
	return err
}
