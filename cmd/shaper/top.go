package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/app/top"
	"github.com/jobshaper/jobshaper/internal/clip"
)

// showTop lists the n tenants that offer the most, and the n that are refused the most.
func (d *desk) showTop(c *cli.Context, n int) error {
	if _, err := d.Downstream(c.Context); err != nil {
		return err
	}
	t, err := top.Read(c.Context, d.store.Client, d.downstream)
	if err != nil {
		return err
	}
	t.Cut(n)
	if d.json != nil {
		return d.json.Print(struct {
			Downstream string `json:"downstream"`
			top.Top
		}{d.downstream, t})
	}
	if t.Processes == 0 {
		return d.tell(nil, "downstream %s: nothing was offered over HTTP in the last minutes; what `enqueue` and Go clients offer is not counted here", d.downstream)
	}
	processes := "1 daemon"
	if t.Processes > 1 {
		processes = fmt.Sprintf("%d daemons", t.Processes)
	}
	fmt.Fprintf(d.out, "downstream %s, offered over HTTP to %s; counts halve every minute, and are seldom more than %d too high\n",
		d.downstream, processes, t.MaxError)
	if err := d.printTop("OFFERED", t.Offers); err != nil {
		return err
	}
	return d.printTop("REFUSED", t.Refusals)
}

// printTop prints one list, with the share of each tenant.
func (d *desk) printTop(what string, l top.List) error {
	if len(l.Tenants) == 0 {
		return nil
	}
	rows := make([][]string, 0, len(l.Tenants))
	for _, t := range l.Tenants {
		rows = append(rows, []string{clip.Cell(t.Name, 20), fmt.Sprint(t.Count), fmt.Sprintf("%.1f %%", min(100, 100*float64(t.Count)/float64(max(l.All, 1))))})
	}
	fmt.Fprintln(d.out)
	return table(d.out, []string{"TENANT", ">" + what, ">SHARE"}, rows)
}
