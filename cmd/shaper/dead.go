package main

import (
	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/shaper"
)

func deadCommand() *cli.Command {
	return &cli.Command{
		Name:  "dead",
		Usage: "list, requeue and remove jobs that used up their attempts",
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list dead jobs, the newest first", Flags: cmdline.Flags(tenantFlag("all"), limitFlag()), Action: withDesk(listDead)},
			cliutil.Examples(&cli.Command{Name: "requeue", Usage: "bring dead jobs back to the front of their queue; without an ID, all of the tenant's",
				ArgsUsage: "[ID...]", Flags: cmdline.Flags(deadTenantFlag()), Action: withDesk(requeueDead)},
				"shaper dead requeue --tenant acme",
				"shaper dead requeue --tenant acme 0198c2a1-4f6b-7e2a-b2c9-0a54c3f0e1d2"),
			{Name: "rm", Usage: "forget dead jobs", ArgsUsage: "ID... | --all", Action: withDesk(removeDead),
				Flags: cmdline.Flags(deadTenantFlag(), &cli.BoolFlag{Name: "all", Usage: "all dead jobs of the tenant"})},
		},
	}
}

func deadTenantFlag() cli.Flag {
	return &cli.StringFlag{Name: "tenant", Aliases: []string{"t"}, Usage: "`NAME` of the tenant", Value: shaper.DefaultName}
}

func listDead(c *cli.Context, d *desk) error {
	if _, err := cliutil.Args(c); err != nil {
		return err
	}
	list, err := d.collect(c, func(tenant string, limit int) ([]shaper.Job, error) { return d.Dead(c.Context, tenant, limit) })
	if err != nil {
		return err
	}
	if d.json == nil && len(list) == 0 {
		return d.tell(nil, "no dead jobs")
	}
	return d.printJobs(list)
}

func requeueDead(c *cli.Context, d *desk) error {
	return d.requeue(c, c.String("tenant"), c.Args().Slice()...)
}

// requeue brings dead jobs back; without ids, all of a tenant's.
func (d *desk) requeue(c *cli.Context, tenant string, ids ...string) error {
	n, full, err := d.RequeueDead(c.Context, tenant, ids...)
	if err != nil {
		return err
	}
	if err := d.tell(done{"requeued", tenant, d.downstream, n}, "%s of tenant %s brought back", jobs(n), tenant); err != nil {
		return err
	}
	if full {
		return cliutil.Exitf(cliutil.ExitTempFail, "the queue of tenant %s has no more room: try again when some jobs have left it", tenant)
	}
	return notDead(tenant, n, ids)
}

func removeDead(c *cli.Context, d *desk) error {
	tenant, ids := c.String("tenant"), c.Args().Slice()
	if c.Bool("all") == (len(ids) > 0) {
		return cliutil.Usagef("want the IDs of dead jobs, or --all\nSee shaper dead rm --help")
	}
	n, err := d.RemoveDead(c.Context, tenant, ids...)
	if err != nil {
		return err
	}
	if err := d.tell(done{"removed", tenant, d.downstream, n}, "%s of tenant %s forgotten", jobs(n), tenant); err != nil {
		return err
	}
	return notDead(tenant, n, ids)
}

// notDead is the error where only n of the ids that were named are dead jobs of a tenant.
func notDead(tenant string, n int, ids []string) error {
	if n < len(ids) {
		return cliutil.Exitf(cliutil.ExitFailed, "not among the dead jobs of tenant %s: %d of the %d named", tenant, len(ids)-n, len(ids))
	}
	return nil
}
