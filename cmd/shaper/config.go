package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/config"
	"github.com/jobshaper/jobshaper/shaper"
)

func configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "check config files",
		Subcommands: []*cli.Command{
			cliutil.Examples(&cli.Command{
				Name: "check", Usage: "tell whether a config file can be used, and list every mistake with its key and line",
				ArgsUsage: "FILE", Action: checkConfig,
			}, "shaper config check shaper.yaml"),
		},
	}
}

// sayShares says which tenants cannot reach their rates while others fill the downstream, see
// shaper.Spacing.
func sayShares(w io.Writer, d config.Downstream) {
	say := func(who string, rate buckets.Rate) {
		if share := d.Policy.Share(rate); share < 0.995 {
			fmt.Fprintf(w, "downstream %s: %s cannot have more than %.0f %% of %v while others fill the %v of all", d.Name, who, math.Floor(100*share), rate, d.Policy.Rate)
			if d.Policy.Spacing != shaper.SharedSpacing && d.Policy.Rate.Interval() < rate.Interval() {
				fmt.Fprint(w, " (spacing: shared lets it)")
			}
			fmt.Fprintln(w)
		}
	}
	common := d.Policy.WithDefaults().Defaults.Rate
	say("a tenant", common)
	for _, name := range slices.Sorted(maps.Keys(d.Tenants)) {
		if r := d.Tenants[name].Rate; !r.IsZero() && r != common {
			say("tenant "+name, r)
		}
	}
}

func checkConfig(c *cli.Context) error {
	args, err := cliutil.Args(c, "FILE")
	if err != nil {
		return err
	}
	file, err := config.Load(args[0])
	if err != nil {
		return &cliutil.Exit{Code: cliutil.ExitFailed, Err: err}
	}
	for _, d := range file.Downstreams {
		if t := d.Target; !t.IsZero() {
			// The command may exist only where the daemon runs: worth a line, but no mistake of the
			// file.
			if _, err := newHandler(t); err != nil {
				fmt.Fprintf(c.App.ErrWriter, "%s:%d: downstreams.%s.%s (on this machine)\n", file.Name, t.Line, d.Name, cliutil.Printable(err.Error()))
			}
		}
		p := d.Policy.WithDefaults().Defaults
		fmt.Fprintf(c.App.Writer, "downstream %s: each tenant %s, %d may wait; %d tenants named\n", d.Name, p.Rate, p.Depth, len(d.Tenants))
		sayShares(c.App.Writer, d)
		if text := cmdline.Exposure(d.Policy); text != "" {
			fmt.Fprintf(c.App.Writer, "downstream %s: %s\n", d.Name, text)
		}
		if n := d.Client.Replicas; n > 0 {
			fmt.Fprintf(c.App.Writer, "downstream %s: accepts a job once %d replicas have it too\n", d.Name, n)
		}
		for _, rule := range cmdline.RuleTexts(d.Policy.Admit) {
			fmt.Fprintf(c.App.Writer, "downstream %s: admits %s\n", d.Name, rule)
		}
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s is fine\n", file.Name)
	return err
}
