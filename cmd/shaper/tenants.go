package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/shaper"
)

func tenantsCommand() *cli.Command {
	return &cli.Command{
		Name:  "tenants",
		Usage: "list, change, pause and empty tenants' queues",
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list tenants", Flags: cmdline.Flags(), Action: withDesk(listTenants)},
			{Name: "show", Usage: "show all that is known of one tenant", ArgsUsage: "TENANT", Flags: cmdline.Flags(), Action: withDesk(showTenant)},
			setTenantCommand(),
			pauseCommand(),
			{Name: "resume", Usage: "end a pause; the backlog leaves at its rate, without a burst", ArgsUsage: "TENANT",
				Flags: cmdline.Flags(allFlag()), Action: withDesk(resumeTenant)},
			{Name: "purge", Usage: "cancel all jobs that are waiting", ArgsUsage: "TENANT", Flags: cmdline.Flags(), Action: withDesk(purgeTenant)},
			{Name: "rm", Usage: "forget a tenant that has nothing left", ArgsUsage: "TENANT", Flags: cmdline.Flags(), Action: withDesk(removeTenant)},
		},
	}
}

func allFlag() cli.Flag {
	return &cli.BoolFlag{Name: "all", Usage: "the whole downstream instead of one tenant"}
}

func listTenants(c *cli.Context, d *desk) error {
	if _, err := cliutil.Args(c); err != nil {
		return err
	}
	tenants, err := d.Tenants(c.Context)
	if err != nil {
		return err
	}
	if d.json == nil && len(tenants) == 0 {
		return d.tell(nil, "no tenant of downstream %s is known yet; the first job makes one", d.downstream)
	}
	return d.printTenants(tenants)
}

// printTenants prints a line for each tenant.
func (d *desk) printTenants(tenants []shaper.TenantInfo) error {
	var rows [][]string
	for _, t := range tenants {
		if d.json != nil {
			if err := d.json.Print(wire.NewTenant(d.downstream, t)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{clip.Cell(t.Name, 20), t.Effective.Rate.String(), fmt.Sprintf("%d/%d", t.Level(), t.Effective.Depth),
			short(t.Oldest), fmt.Sprint(t.Out + t.Running), fmt.Sprint(t.Counters.Accepted), fmt.Sprint(t.Counters.Done),
			fmt.Sprint(t.Counters.Failed), fmt.Sprint(t.Dead), tenantState(t)})
	}
	if d.json != nil {
		return nil
	}
	return table(d.out, []string{"TENANT", ">RATE", ">WAITING", ">OLDEST", ">IN FLIGHT", ">ACCEPTED", ">DONE", ">FAILED", ">DEAD", "STATE"}, rows)
}

func showTenant(c *cli.Context, d *desk) error {
	args, err := cliutil.Args(c, "TENANT")
	if err != nil {
		return err
	}
	return d.showTenant(c, args[0])
}

func (d *desk) showTenant(c *cli.Context, name string) error {
	t, err := d.Tenant(c.Context, name)
	if err != nil {
		return err
	}
	if d.json != nil {
		return d.json.Print(wire.NewTenant(d.downstream, t))
	}
	next := ""
	switch {
	case t.Waiting == 0 || t.Paused || t.Parked != "":
	case t.NextSlot.IsZero():
		next = "; " + map[string]string{shaper.NotePaused: "the downstream is paused", shaper.NoteNoWorkers: "no workers serve the downstream",
			shaper.NoteInFlight: "the next leaves when running jobs make room"}[t.Note]
	default:
		next = "; the next leaves in " + short(max(time.Until(t.NextSlot), time.Millisecond))
	}
	ds, err := d.Downstream(c.Context)
	if err != nil {
		return err
	}
	return d.facts(append([][2]string{
		{"tenant", t.Name + " of downstream " + d.downstream},
		{"state", tenantState(t)},
		{"waiting", fmt.Sprintf("%d of %d%s", t.Level(), t.Effective.Depth, waitingText(t.Delayed, t.Oldest)) + next},
		{"in flight", fmt.Sprintf("%d running, %d tickets out, at most %d", t.Running, t.Out, t.Effective.MaxInFlight)},
		{"dead", fmt.Sprint(t.Dead)},
		{"counters", countersText(t.Counters)},
	}, append(policyFacts(t), admitFacts(ds.Admit)...)...)...)
}

// policyFacts lists the policy that applies to a tenant, one field per line. Some fields are shown
// beside another instead.
func policyFacts(t shaper.TenantInfo) (facts [][2]string) {
	p, set := t.Effective, setting.Of(&t.Set)
	for i, v := range setting.Of(&p) {
		name, text, own := strings.ReplaceAll(v.Name, "_", " "), v.Text(), set[i].IsSet()
		switch v.Pointer() {
		case &p.OnFull, &p.MaxInFlight, &p.Backoff:
			continue
		case &p.Rate:
			text += ", one every " + p.Rate.Interval().String()
		case &p.Depth:
			text += ", then " + string(p.OnFull)
		case &p.MaxAttempts:
			name, text, own = "attempts", fmt.Sprintf("%s, %s apart", text, p.Backoff), own || !t.Set.Backoff.IsZero()
		case &p.MaxThrottles:
			name, text = "throttles", text+" before a job is dead"
		}
		if !own {
			text += "  (inherited)"
		}
		facts = append(facts, [2]string{name, text})
	}
	return facts
}

// countersText lists what has happened, and leaves out what never did.
func countersText(c shaper.Counters) string {
	counts := wire.Counters(c)
	var words []string
	for _, name := range []string{"accepted", "started", "done", "failed", "retried", "throttled", "dead", "expired", "cancelled", "dropped", "crashed", "suspected", "lost_tickets", "forgotten", "evicted"} {
		if n := counts[name]; n > 0 || name == "accepted" || name == "done" {
			words = append(words, fmt.Sprintf("%d %s", n, strings.ReplaceAll(name, "_", " ")))
		}
	}
	return strings.Join(words, ", ")
}

// facts prints names and values.
func (d *desk) facts(facts ...[2]string) error {
	for _, f := range facts {
		if f[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(d.out, "%-11s %s\n", f[0], cliutil.Printable(f[1])); err != nil {
			return err
		}
	}
	return nil
}

// waitingText says more about jobs that wait, where there is more to say.
func waitingText(delayed int, oldest time.Duration) string {
	s := ""
	if delayed > 0 {
		s += fmt.Sprintf(", %d of them delayed", delayed)
	}
	if oldest > 0 {
		s += ", the oldest for " + short(oldest)
	}
	return s
}
