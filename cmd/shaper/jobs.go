package main

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/shaper"
)

func jobsCommand() *cli.Command {
	return &cli.Command{
		Name:  "jobs",
		Usage: "list, show, cancel and requeue jobs",
		Subcommands: []*cli.Command{
			cliutil.Examples(&cli.Command{Name: "ls", Usage: "list jobs that have not ended", Action: withDesk(listJobs),
				Flags: cmdline.Flags(tenantFlag("all"), limitFlag(),
					&cli.StringSliceFlag{Name: "state", Usage: "only jobs in `STATE`: waiting, delayed, out, running or dead; may be repeated"})},
				"shaper jobs ls --tenant acme --state waiting --limit 10"),
			{Name: "show", Usage: "show all that is known of one job", ArgsUsage: "ID", Flags: cmdline.Flags(tenantFlag("search all")), Action: withDesk(showJob)},
			{Name: "cancel", Usage: "end a job: if it waits, it never starts; if it runs, its handler is told to stop", ArgsUsage: "ID",
				Flags: cmdline.Flags(tenantFlag("search all")), Action: withDesk(cancelJob)},
			{Name: "requeue", Usage: "bring a dead job back to the front of its queue, with all its attempts ahead of it", ArgsUsage: "ID",
				Flags: cmdline.Flags(tenantFlag("search all")), Action: withDesk(requeueJob)},
		},
	}
}

func tenantFlag(without string) cli.Flag {
	return &cli.StringFlag{Name: "tenant", Aliases: []string{"t"}, Usage: "`NAME` of the tenant (default: " + without + ")"}
}

func limitFlag() cli.Flag {
	return &cli.IntFlag{Name: "limit", Usage: "at most `N` jobs", Value: 100}
}

func listJobs(c *cli.Context, d *desk) error {
	if _, err := cliutil.Args(c); err != nil {
		return err
	}
	f := shaper.JobFilter{Limit: c.Int("limit")}
	for _, s := range c.StringSlice("state") {
		f.States = append(f.States, shaper.State(s))
	}
	if err := f.Validate(); err != nil { // even where there is no tenant yet
		return err
	}
	list, err := d.collect(c, func(tenant string, limit int) ([]shaper.Job, error) {
		f.Limit = limit
		return d.Jobs(c.Context, tenant, f)
	})
	if err != nil {
		return err
	}
	if d.json == nil && len(list) == 0 {
		return d.tell(nil, "no jobs")
	}
	return d.printJobs(list)
}

// collect lists the jobs of the named tenant, or of all tenants in turn, up to the limit.
func (d *desk) collect(c *cli.Context, list func(tenant string, limit int) ([]shaper.Job, error)) ([]shaper.Job, error) {
	limit := c.Int("limit")
	if limit < 1 {
		return nil, cliutil.Usagef("--limit \"%d\": want at least 1", limit)
	}
	names, all := []string{c.String("tenant")}, c.String("tenant") == ""
	if all {
		var err error
		if names, err = d.Names(c.Context, false); err != nil {
			return nil, err
		}
	}
	var out []shaper.Job
	for _, name := range names {
		jobs, err := list(name, limit-len(out))
		if all && errors.Is(err, shaper.ErrNotFound) {
			continue // the tenant was forgotten meanwhile
		}
		if err != nil {
			return nil, err
		}
		if out = append(out, jobs...); len(out) >= limit {
			break
		}
	}
	return out, nil
}

func (d *desk) printJobs(list []shaper.Job) error {
	var rows [][]string
	for _, j := range list {
		if d.json != nil {
			if err := d.json.Print(wire.NewJob(j)); err != nil {
				return err
			}
			continue
		}
		since := ago(j.Accepted)
		if j.State == shaper.StateDead {
			since = ago(j.EndedAt)
		}
		rows = append(rows, []string{j.ID, clip.Cell(j.Tenant, 16), clip.Cell(j.Type, 20), string(j.State), since, fmt.Sprint(j.Attempt), clip.Cell(j.Error, 40)})
	}
	if d.json != nil {
		return nil
	}
	return table(d.out, []string{"ID", "TENANT", "TYPE", "STATE", ">SINCE", ">STARTS", "LAST ERROR"}, rows)
}

// find returns the job that a command names.
func (d *desk) find(c *cli.Context) (shaper.Job, error) {
	args, err := cliutil.Args(c, "ID")
	if err != nil {
		return shaper.Job{}, err
	}
	if tenant := c.String("tenant"); tenant != "" {
		j, err := d.client.Find(c.Context, tenant, args[0])
		if errors.Is(err, shaper.ErrNotFound) {
			if _, unseen := d.Tenant(c.Context, tenant); unseen != nil {
				return shaper.Job{}, unseen
			}
		}
		return j, err
	}
	return d.FindJob(c.Context, args[0])
}

func showJob(c *cli.Context, d *desk) error {
	j, err := d.find(c)
	if err != nil {
		return err
	}
	if d.json != nil {
		return d.json.Print(wire.NewJob(j))
	}
	state := string(j.State)
	switch {
	case j.Position > 0:
		state += fmt.Sprintf(", position %d", j.Position)
	case j.State == shaper.StateDelayed:
		state += ", due " + cmdline.When(j.Due)
	case j.Reason != "":
		state += ", " + j.Reason
	}
	if j.Suspect && !j.State.Ended() {
		state += "; suspect: a process died while it ran, so it runs apart from other suspects"
	}
	return d.facts(
		[2]string{"job", j.ID},
		[2]string{"tenant", j.Tenant + " of downstream " + j.Downstream},
		[2]string{"type", j.Type},
		[2]string{"state", state},
		[2]string{"starts", fmt.Sprintf("%d, %d of them charged, %d crashed (%d blamed on it), %d throttled", j.Attempt, j.Charged, j.Crashes, j.Blamed, j.Throttles)},
		[2]string{"accepted", cmdline.When(j.Accepted)},
		[2]string{"last slot", cmdline.When(j.Slot)},
		[2]string{"ended", cmdline.When(j.EndedAt)},
		[2]string{"error", j.Error},
		[2]string{"payload", text(j.Payload)},
		[2]string{"result", text(j.Result)},
	)
}

// text shows bytes to people.
func text(b []byte) string {
	if !utf8.Valid(b) {
		return fmt.Sprintf("%d bytes that are not text; see --json", len(b))
	}
	return string(b)
}

func cancelJob(c *cli.Context, d *desk) error {
	j, err := d.find(c)
	if err != nil {
		return err
	}
	state, err := d.client.Cancel(c.Context, j.Tenant, j.ID)
	if err != nil {
		return err
	}
	switch state {
	case shaper.StateCancelled:
		return d.tell(done{"cancelled", j.Tenant, d.downstream, 1}, "job %s is cancelled", j.ID)
	case shaper.StateRunning:
		return d.tell(done{"cancelling", j.Tenant, d.downstream, 1}, "job %s is running; its handler was told to stop, and the job will not start again", j.ID)
	}
	return cliutil.Exitf(cliutil.ExitFailed, "job %s: too late, it is %s", j.ID, state)
}

func requeueJob(c *cli.Context, d *desk) error {
	j, err := d.find(c)
	if err != nil {
		return err
	}
	if j.State != shaper.StateDead {
		return cliutil.Exitf(cliutil.ExitFailed, "job %s is %s: only dead jobs can be requeued", j.ID, j.State)
	}
	return d.requeue(c, j.Tenant, j.ID)
}

// jobs counts jobs in words.
func jobs(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}
