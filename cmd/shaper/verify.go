package main

import (
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/app/verify"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// verifying are the values of `shaper verify`.
type verifying struct {
	since, tolerance time.Duration
	rate             buckets.Rate
	bound            int
}

func verifyCommand() *cli.Command {
	f := &verifying{tolerance: shaper.DefaultTolerance}
	log := withDesk(f.log)
	file := cmdline.Action(f.file)
	return cliutil.Examples(&cli.Command{
		Name: "verify", Usage: "judge from what happened whether the promises were kept",
		Description: "Reads the departure log of a downstream, which must be on: departure_log in its configuration, or\n" +
			"shaper run --departure-log. With --file it judges a history instead, as the project's own tests write them.\n" +
			"A start is judged by the instant at which its target let it go: an HTTP target the first byte of the request, an\n" +
			"exec target the program (where it cannot be held ready, the instant before it is started); any other handler is\n" +
			"judged by its first instruction.\n\n" +
			"Exit codes: 0 all promises held; 1 one was broken; 65 there is nothing to judge; 64 usage; 69 Redis does not answer.",
		Flags: cmdline.Flags(
			&cli.StringFlag{Name: "tenant", Usage: "judge only the tenant `NAME`"},
			cmdline.PositiveDuration("since", "judge only what was logged within the last `DURATION`", &f.since),
			&cli.StringFlag{Name: "file", Usage: "judge the history in `FILE` rather than a departure log"},
			cmdline.Rate("rate", "with --file: each tenant's `RATE`, such as 10/s", &f.rate),
			cmdline.PositiveDuration("tolerance", "with --file: how long after its slot a start may happen, `DURATION`", &f.tolerance),
			cmdline.Whole("bound", "with --file: how many jobs of a tenant may be accepted but not started, `N`: its depth plus all places", &f.bound),
		),
		Action: func(c *cli.Context) error {
			if c.String("file") != "" {
				return file(c)
			}
			return log(c)
		},
	},
		"# the whole log of a downstream",
		"shaper verify --downstream transcoder",
		"# one tenant, the last hour, for a monitor",
		"shaper verify --tenant acme --since 1h --json || alert",
		"# a history file",
		"shaper verify --file history.jsonl --rate 10/s --tolerance 20ms")
}

// log judges a departure log.
func (f *verifying) log(c *cli.Context, d *desk) error {
	if _, err := cliutil.Args(c); err != nil {
		return err
	}
	for _, name := range []string{"rate", "tolerance", "bound"} {
		if c.IsSet(name) {
			return cliutil.Usagef("--%s without --file: the departure log says what was in effect", name)
		}
	}
	tenant := c.String("tenant")
	if tenant != "" {
		if err := shaper.ValidName("tenant", tenant); err != nil {
			return err
		}
	}
	v, err := verify.Log(c.Context, d.downstream, d.Admin, verify.Options{Tenant: tenant, Since: f.since})
	if none := (*verify.NoLogError)(nil); errors.As(err, &none) {
		return &cliutil.Exit{Code: cliutil.ExitDataErr, Err: err}
	}
	if err != nil {
		return err
	}
	return printVerified(c, v)
}

// file judges a history file.
func (f *verifying) file(c *cli.Context) error {
	if _, err := cliutil.Args(c); err != nil {
		return err
	}
	if f.rate.IsZero() {
		return cliutil.Usagef("missing flag --rate: --file needs the rate that starts are judged by, such as --rate 10/s")
	}
	if c.IsSet("since") {
		return cliutil.Usagef("--since beside --file: a file is judged as a whole")
	}
	v, err := verify.File(c.String("file"), verify.FileOptions{
		Rule: history.Rule{Rate: f.rate, Tolerance: f.tolerance}, Tenant: c.String("tenant"), Bound: f.bound})
	if err != nil {
		return cliutil.Exitf(cliutil.ExitDataErr, "--file %q: %w", c.String("file"), err)
	}
	if len(v.Promises) == 0 {
		return cliutil.Exitf(cliutil.ExitDataErr, "--file %q: no event in it that could be judged", c.String("file"))
	}
	return printVerified(c, v)
}

func printVerified(c *cli.Context, v verify.Findings) error {
	var err error
	if c.Bool("json") {
		err = v.PrintJSON(cliutil.NewJSONLines(c.App.Writer))
	} else {
		err = v.Print(c.App.Writer)
	}
	if err != nil || v.Held() {
		return err
	}
	return &cliutil.Exit{Code: cliutil.ExitFailed} // what was broken has been printed
}
