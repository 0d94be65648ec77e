package main

import (
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/internal/app"
	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/config"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers/target"
)

// fromFlags adds the one downstream that flags describe.
func fromFlags(c *cli.Context, f *runFlags, cfg *app.Config) error {
	d := config.Downstream{Name: c.String("downstream"), Config: jobshaper.Config{Concurrency: f.concurrency, Client: f.client}}
	d.Policy.Rate, d.Policy.Defaults = f.totalRate, shaper.Policy{Rate: f.rate, Depth: f.depth}
	d.Policy.DepartureLog = f.departures
	var err error
	if d.Policy.Admit, err = cmdline.Rules(c, "admit"); err != nil {
		return err
	}
	if err := errors.Join(shaper.ValidName("downstream", d.Name), d.Policy.Validate(), d.Client.Validate()); err != nil {
		return &cliutil.Exit{Code: cliutil.ExitUsage, Err: err}
	}
	if line := c.String("exec"); line != "" {
		argv, err := splitWords(line)
		if err != nil {
			return cliutil.Usagef("--exec %q: %w", line, err)
		}
		d.Target.Exec = argv
	}
	d.Target.HTTP = c.String("http")
	switch {
	case d.Target.HTTP != "" && len(d.Target.Exec) > 0:
		return cliutil.Usagef("--exec and --http: want only one of them")
	case !cfg.Roles.Worker:
	case d.Target.IsZero():
		return usageNoTarget()
	default:
		if d.Handler, err = newHandler(d.Target); err != nil {
			return &cliutil.Exit{Code: cliutil.ExitUsage, Err: err}
		}
	}
	cfg.Downstreams = []config.Downstream{d}
	return nil
}

// fromFile adds what a config file describes.
func fromFile(c *cli.Context, f *runFlags, path string, cfg *app.Config) error {
	for _, name := range []string{"exec", "http", "rate", "total-rate", "depth", "concurrency", "departure-log", "admit", "wait-replicas", "wait-replicas-timeout"} {
		if c.IsSet(name) {
			return cliutil.Usagef("--%s beside --config: want it in the file, or no file", name)
		}
	}
	file, err := config.Load(path)
	if err != nil {
		return &cliutil.Exit{Code: cliutil.ExitConfig, Err: err}
	}
	cfg.Redis, cfg.DataDir, cfg.Listen = file.Redis, file.DataDir, file.Listen
	cfg.Downstreams = file.Downstreams
	if cfg.Roles.Worker {
		if err := makeHandlers(file); err != nil {
			return &cliutil.Exit{Code: cliutil.ExitConfig, Err: err}
		}
	}
	return nil
}

// makeHandlers makes the handlers for the jobs of a config file. Its error names all mistakes, each
// with its line.
func makeHandlers(file *config.File) error {
	var wrong []error
	for i := range file.Downstreams {
		d := &file.Downstreams[i]
		if d.Target.IsZero() {
			wrong = append(wrong, fmt.Errorf("%s: downstreams.%s: no target: want one, or --roles scheduler,api if workers run elsewhere", file.Name, d.Name))
			continue
		}
		var err error
		if d.Handler, err = newHandler(d.Target); err != nil {
			wrong = append(wrong, fmt.Errorf("%s:%d: downstreams.%s.%w", file.Name, d.Target.Line, d.Name, err))
		}
	}
	return errors.Join(wrong...)
}

func newHandler(t config.Target) (asynq.Handler, error) {
	if t.HTTP != "" {
		return target.NewHTTP(target.HTTPConfig{URL: t.HTTP, Headers: t.Headers})
	}
	return target.NewExec(target.ExecConfig{Argv: t.Exec, Env: t.Env, Dir: t.Dir})
}
