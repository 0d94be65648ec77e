package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/shaper"
)

func setTenantCommand() *cli.Command {
	p := &shaper.Policy{}
	return cliutil.Examples(&cli.Command{
		Name: "set", Usage: "change a tenant's policy, at once and for its backlog too", ArgsUsage: "TENANT",
		Flags:       cmdline.Flags(cmdline.Settings(setting.Of(p))...),
		Description: "What is not named stays as it is. The change lasts until a daemon starts with a configuration other than the one applied last.",
		Action: withDesk(func(c *cli.Context, d *desk) error {
			args, err := cliutil.Args(c, "TENANT")
			if err != nil {
				return err
			}
			if *p == (shaper.Policy{}) {
				return cliutil.Usagef("nothing to set: want --rate, --depth or another flag\nSee shaper tenants set --help")
			}
			if err := d.SetTenant(c.Context, args[0], *p); err != nil {
				return err
			}
			return d.showTenant(c, args[0])
		}),
	},
		"shaper tenants set acme --rate 20/s --depth 5000",
		"shaper tenants set acme --backoff 1s..5m --max-attempts 3 --downstream transcoder")
}

func pauseCommand() *cli.Command {
	var d time.Duration
	return cliutil.Examples(&cli.Command{
		Name: "pause", Usage: "let nothing start; what runs goes on, and new jobs wait", ArgsUsage: "TENANT",
		Flags: cmdline.Flags(cmdline.PositiveDuration("for", "resume automatically after `DURATION` (default: only shaper tenants resume does)", &d), allFlag()),
		Action: withDesk(func(c *cli.Context, desk *desk) error {
			tenant, name, err := oneOrAll(c, desk)
			if err != nil {
				return err
			}
			if err := desk.Pause(c.Context, tenant, d); err != nil {
				return err
			}
			until := "until it is resumed"
			if d > 0 {
				until = "for " + d.String()
			}
			return desk.tell(done{"paused", tenant, desk.downstream, 0}, "%s is paused %s", name, until)
		}),
	},
		"shaper tenants pause acme --for 10m",
		"shaper tenants pause --all --downstream partner")
}

// done is the answer of a command that changes something.
type done struct {
	Done       string `json:"done"`
	Tenant     string `json:"tenant"` // empty = the whole downstream
	Downstream string `json:"downstream"`
	Jobs       int    `json:"jobs"`
}

// oneOrAll returns the tenant that a command names, or "" with --all, and what to call it.
func oneOrAll(c *cli.Context, d *desk) (tenant, name string, err error) {
	if c.Bool("all") {
		_, err := cliutil.Args(c)
		return "", "downstream " + d.downstream, err
	}
	args, err := cliutil.Args(c, "TENANT")
	if err != nil {
		return "", "", err
	}
	return args[0], "tenant " + args[0], shaper.ValidName("tenant", args[0])
}

func resumeTenant(c *cli.Context, d *desk) error {
	tenant, name, err := oneOrAll(c, d)
	if err != nil {
		return err
	}
	if err := d.Resume(c.Context, tenant); err != nil {
		return err
	}
	return d.tell(done{"resumed", tenant, d.downstream, 0}, "%s is resumed", name)
}

func purgeTenant(c *cli.Context, d *desk) error {
	args, err := cliutil.Args(c, "TENANT")
	if err != nil {
		return err
	}
	n, err := d.Purge(c.Context, args[0])
	if err != nil {
		return err
	}
	return d.tell(done{"purged", args[0], d.downstream, n}, "%s of tenant %s cancelled", jobs(n), args[0])
}

func removeTenant(c *cli.Context, d *desk) error {
	args, err := cliutil.Args(c, "TENANT")
	if err != nil {
		return err
	}
	if err := d.Remove(c.Context, args[0]); err != nil {
		return err
	}
	return d.tell(done{"removed", args[0], d.downstream, 0}, "tenant %s is forgotten", args[0])
}
