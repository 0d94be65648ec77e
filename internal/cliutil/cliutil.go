// Package cliutil makes programs of urfave/cli v2 behave as users of a shell
// expect, in one call, Run:
//
//   - flags stand before or after arguments and commands;
//   - a flag takes an environment variable, SHAPER_ and its name, only where the
//     program says so, see FromEnv;
//   - a mistyped word is reported on stderr with the word probably meant, exit code 64;
//   - exit codes are those of sysexits.h;
//   - stdout holds results only; help goes there when it was asked for;
//   - bash, zsh and fish complete commands and flags.
//
// It keeps no state of its own between calls and touches none of the library's
// globals, so tests may run programs in parallel.
package cliutil

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/urfave/cli/v2"
)

// Run runs a program and returns its exit code. args is the command line with the
// program's name first, as os.Args. The app must be made anew for each Run. Its
// actions write results to c.App.Writer and all else to c.App.ErrWriter.
//
// An action that returns an *Exit chooses the code; any other error is code 1. Output that
// cannot be written ends the action's context, and is an error whatever the action returns.
func Run(ctx context.Context, app *cli.App, args []string, stdout, stderr io.Writer) int {
	ctx, end := context.WithCancel(ctx)
	defer end()
	out := &Output{w: stdout, end: end}
	app.Writer, app.ErrWriter = out, stderr
	if app.Name == "" {
		app.Name = filepath.Base(args[0])
	}
	prepare(app)
	return report(app.Name, out.failure(run(ctx, app, args[1:], out)), stderr)
}

func run(ctx context.Context, app *cli.App, args []string, stdout io.Writer) error {
	if len(args) > 0 && args[0] == completeWord {
		return complete(app, args[1:], stdout)
	}
	line, err := parse(app, args)
	if err != nil {
		return err
	}
	if line.has(versionName) && app.Version != "" {
		_, err := fmt.Fprintf(stdout, "%s %s\n", app.Name, app.Version)
		return err
	}
	if shell, asked := line.value(completionName); asked {
		return printScript(stdout, app.Name, shell)
	}
	if err := line.check(); err != nil {
		return err
	}
	return app.RunContext(ctx, append([]string{app.Name}, line.argv()...))
}
