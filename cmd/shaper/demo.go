package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/app/demo"
	"github.com/jobshaper/jobshaper/internal/cliutil"
)

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "see in 15 seconds what shaping does; needs nothing, leaves nothing",
		Action: cmdline.Action(func(c *cli.Context) error {
			if _, err := cliutil.Args(c); err != nil {
				return err
			}
			columns, _ := cmdline.Terminal(c.App.Writer)
			log := slog.New(cmdline.NewConciseHandler(c.App.ErrWriter, slog.LevelError))
			ctx, stop := cmdline.WhileHeard(c.Context)
			defer stop()
			err := demo.Run(ctx, c.App.Writer, columns, log)
			switch {
			case errors.Is(err, context.Canceled) && c.Context.Err() == nil: // nobody is left to tell
				return &cliutil.Exit{Code: cliutil.ExitFailed}
			case errors.Is(err, context.Canceled):
				return cliutil.Exitf(cliutil.ExitFailed, "interrupted")
			}
			return err
		}),
	}
}
