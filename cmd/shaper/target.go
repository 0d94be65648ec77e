package main

import (
	"errors"
	"fmt"
	"slices"

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
	d := app.Downstream{Name: c.String("downstream"), Config: jobshaper.Config{Concurrency: f.concurrency, Client: f.client}}
	d.Policy.Defaults = shaper.Policy{Rate: f.rate, Depth: f.depth}
	d.Policy.DepartureLog = f.departures
	var err error
	if d.Policy.Admit, err = cmdline.Rules(c, "admit"); err != nil {
		return err
	}
	if err := errors.Join(shaper.ValidName("downstream", d.Name), d.Policy.Validate(), d.Client.Validate()); err != nil {
		return &cliutil.Exit{Code: cliutil.ExitUsage, Err: err}
	}
	var target config.Target
	if line := c.String("exec"); line != "" {
		argv, err := splitWords(line)
		if err != nil {
			return cliutil.Usagef("--exec %q: %w", line, err)
		}
		target.Exec = argv
	}
	target.HTTP = c.String("http")
	switch {
	case target.HTTP != "" && len(target.Exec) > 0:
		return cliutil.Usagef("--exec and --http: want only one of them")
	case !cfg.Roles.Worker:
	case target.IsZero():
		return usageNoTarget()
	default:
		if d.Handler, err = newHandler(target); err != nil {
			return &cliutil.Exit{Code: cliutil.ExitUsage, Err: err}
		}
	}
	cfg.Downstreams = []app.Downstream{d}
	return nil
}

// fromFile adds what a config file describes.
func fromFile(c *cli.Context, f *runFlags, path string, cfg *app.Config) error {
	for _, name := range []string{"exec", "http", "rate", "depth", "concurrency", "departure-log", "admit", "wait-replicas", "wait-replicas-timeout"} {
		if c.IsSet(name) {
			return cliutil.Usagef("--%s beside --config: want it in the file, or no file", name)
		}
	}
	file, err := config.Load(path)
	if err != nil {
		return &cliutil.Exit{Code: cliutil.ExitConfig, Err: err}
	}
	cfg.Redis, cfg.DataDir, cfg.Listen = file.Redis, file.DataDir, file.Listen
	cfg.Downstreams, err = downstreams(file, cfg.Roles.Worker)
	if err != nil {
		return &cliutil.Exit{Code: cliutil.ExitConfig, Err: err}
	}
	return nil
}

// downstreams are those of a config file, in the order of their names, with the handlers for their jobs where the
// process has workers. It returns all mistakes, each with its line.
func downstreams(file *config.File, worker bool) ([]app.Downstream, error) {
	names := make([]string, 0, len(file.Downstreams))
	for name := range file.Downstreams {
		names = append(names, name)
	}
	slices.Sort(names)
	var list []app.Downstream
	var wrong []error
	for _, name := range names {
		d := file.Downstreams[name]
		out := app.Downstream{Name: name, Config: jobshaper.Config{Policy: d.Policy, Tenants: d.Tenants, Concurrency: d.Concurrency, Client: d.Client}}
		switch {
		case !worker:
		case d.Target.IsZero():
			wrong = append(wrong, fmt.Errorf("%s: downstreams.%s: no target: want one, or --roles scheduler,api where workers run elsewhere", file.Name, name))
		default:
			var err error
			if out.Handler, err = newHandler(d.Target); err != nil {
				wrong = append(wrong, fmt.Errorf("%s:%d: downstreams.%s.%w", file.Name, d.Target.Line, name, err))
			}
		}
		list = append(list, out)
	}
	return list, errors.Join(wrong...)
}

func newHandler(t config.Target) (asynq.Handler, error) {
	if t.HTTP != "" {
		return target.NewHTTP(target.HTTPConfig{URL: t.HTTP, Headers: t.Headers})
	}
	return target.NewExec(target.ExecConfig{Argv: t.Exec, Env: t.Env, Dir: t.Dir})
}
