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
			err := demo.Run(c.Context, c.App.Writer, columns, log)
			if errors.Is(err, context.Canceled) {
				return cliutil.Exitf(cliutil.ExitFailed, "interrupted")
			}
			return err
		}),
	}
}
