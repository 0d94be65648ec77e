package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/jobshaper/jobshaper/internal/app/choose"
	"github.com/jobshaper/jobshaper/internal/cliutil"
)

func chooseCommand(stdin io.Reader) *cli.Command {
	var flags []cli.Flag
	for _, q := range choose.Questions() {
		flags = append(flags, &cli.StringFlag{Name: q.Flag, Usage: q.Text + " `yes` or no"})
	}
	return cliutil.Examples(&cli.Command{
		Name: "choose", Usage: "find the algorithm that fits, by up to five questions",
		Description: "Questions that no flag answers are asked; without a terminal the answers are read as lines of stdin.\n" +
			"The questions as a diagram, and what each algorithm costs: docs/choosing.md.",
		Flags: flags,
		Action: func(c *cli.Context) error {
			if _, err := cliutil.Args(c); err != nil {
				return err
			}
			return runChoose(c, stdin)
		},
	},
		"shaper choose",
		"shaper choose --strict-output=no --daily-quota=no --bursts=yes --keep-unused=yes")
}

func runChoose(c *cli.Context, stdin io.Reader) error {
	answers := map[string]bool{}
	for _, q := range choose.Questions() {
		if text := c.String(q.Flag); text != "" {
			yes, ok := choose.ParseAnswer(text)
			if !ok {
				return cliutil.Usagef("--%s %q: want yes or no", q.Flag, text)
			}
			answers[q.Flag] = yes
		}
	}
	choice, err := choose.Walk(c.Context, answers, stdin, c.App.ErrWriter, !isTerminal(stdin))
	switch {
	case errors.Is(err, choose.ErrUnanswered):
		return cliutil.Usagef("%w\nSee shaper choose --help", err)
	case errors.Is(err, context.Canceled):
		return cliutil.Exitf(cliutil.ExitFailed, "interrupted")
	case err != nil:
		return err
	}
	return printChoice(c.App.Writer, choice)
}

// isTerminal reports whether a person may be typing there.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func printChoice(w io.Writer, choice *choose.Choice) error {
	_, err := fmt.Fprintf(w, `%s
  %s.
  At worst, in any window: %s.

In a config file, under a downstream:
  %s

The same as a flag:
  shaper run %s

To see it decide:
  %s
`, choice.Algorithm, choice.Because, choice.Worst, strings.Join(choice.Config, "\n  "), choice.Run, choice.Trace)
	return err
}
