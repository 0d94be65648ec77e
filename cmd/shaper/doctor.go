package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// doctorPatience is how long the examination may take. A slower Redis is of no use to a queue.
const doctorPatience = 15 * time.Second

func doctorCommand() *cli.Command {
	return cliutil.Examples(&cli.Command{
		Name: "doctor", Usage: "tell whether a Redis is fit to keep jobs, and what to change; mend the books of a downstream",
		Description: "It looks at the settings and the state of the server, or of each primary of a cluster, and tries every command that\n" +
			"daemons and producers send, on keys of its own. It leaves nothing behind. The worst findings come first. `shaper run`\n" +
			"does the same when it starts, and refuses to run where a line says refuse.\n\n" +
			"Then it compares the books of a downstream: whether each job of each tenant is in exactly one place, and whether the\n" +
			"counts are right. A write that a failover lost, or that somebody made by hand, leaves them wrong. Schedulers mend most\n" +
			"of that within minutes; --repair mends all of it now, and says what was wrong. Both are safe while jobs run. A note says\n" +
			"how much memory the policies in force let the downstream take; results, and jobs that are dead, come on top.\n\n" +
			"Last, it looks at asynq's queue, which carries tickets to workers: whether somebody has paused it, whether too many\n" +
			"wait in it, and whether asynq servers take them that are none of our pools.\n\n" +
			"Exit codes: 0 fit, perhaps with warnings, and the books are right or were mended; 1 unfit, wrong books, or tickets that do not reach workers; 69 Redis\n" +
			"does not answer; 65 no such downstream; 64 usage.",
		Flags:  cmdline.Flags(&cli.BoolFlag{Name: "repair", Usage: "mend the books of the downstream"}),
		Action: cmdline.Action(doctor),
	},
		"shaper doctor --redis redis://10.0.0.5/0",
		"shaper doctor --downstream transcoder --repair",
		"shaper doctor --json | jq -r 'select(.severity == \"refuse\") | .fix'")
}

// finding is a redisurl.Problem in JSON.
type finding struct {
	Severity string `json:"severity"`
	Node     string `json:"node"`
	Text     string `json:"text"`
	Fix      string `json:"fix"`
}

// bookFault is a shaper.BookFault in JSON.
type bookFault struct {
	Severity   string `json:"severity"` // "books" or "mended"
	Downstream string `json:"downstream"`
	Kind       string `json:"kind"`
	Count      int    `json:"count"`
	Tenant     string `json:"tenant"` // of one of them
	Of         string `json:"of"`
	Text       string `json:"text"`
	Fix        string `json:"fix"`
}

// ticketFault is what keeps tickets from workers, in JSON.
type ticketFault struct {
	Severity   string `json:"severity"` // "tickets"
	Downstream string `json:"downstream"`
	Text       string `json:"text"`
	Fix        string `json:"fix"`
}

// diagnosis is the last line: how many findings there are of each severity.
type diagnosis struct {
	Fit    bool `json:"fit"`
	Refuse int  `json:"refuse"`
	Warn   int  `json:"warn"`
	Note   int  `json:"note"`
	Books  int  `json:"books"`  // faults of the books that remain
	Mended int  `json:"mended"` // faults of the books that were mended

	Tickets int `json:"tickets"` // what keeps tickets from workers
}

func doctor(c *cli.Context) error {
	if _, err := cliutil.Args(c); err != nil {
		return err
	}
	downstream := c.String("downstream")
	if err := shaper.ValidName("downstream", downstream); err != nil { // before the store is asked
		return err
	}
	s, err := cmdline.OpenLazily(c, "shaper-doctor")
	if err != nil {
		return err
	}
	defer closeStore(s)
	ctx, cancel := context.WithTimeout(c.Context, doctorPatience)
	defer cancel()
	problems := redisurl.Check(ctx, s.Client)

	var print func(any, string) error
	if c.Bool("json") {
		lines := cliutil.NewJSONLines(c.App.Writer)
		print = func(v any, _ string) error { return lines.Print(v) }
	} else {
		print = func(_ any, text string) error {
			_, err := fmt.Fprintln(c.App.Writer, cliutil.Printable(text))
			return err
		}
	}
	var all diagnosis
	away := false
	for _, p := range problems {
		switch p.Severity {
		case redisurl.Refuse:
			all.Refuse++
		case redisurl.Warn:
			all.Warn++
		default:
			all.Note++
		}
		away = away || p.Away
		if err := print(finding{p.Severity.String(), p.Node, p.Text, p.Fix}, p.String()); err != nil {
			return err
		}
	}
	all.Fit = all.Refuse == 0
	if all.Fit && !away {
		if err := books(c, s.Client, downstream, &all, print); err != nil {
			return err
		}
		if err := tickets(c, s.Client, downstream, &all, print); err != nil {
			return err
		}
	}
	if err := print(all, s.Describe+" is "+all.String()); err != nil {
		return err
	}
	switch {
	case away:
		return &cliutil.Exit{Code: cliutil.ExitUnavailable}
	case !all.Fit, all.Books > 0, all.Tickets > 0:
		return &cliutil.Exit{Code: cliutil.ExitFailed}
	}
	return nil
}

// books compares the books of a downstream, and mends them if it was asked to.
func books(c *cli.Context, rdb redis.UniversalClient, downstream string, all *diagnosis, print func(any, string) error) error {
	admin, err := shaper.NewAdmin(rdb, downstream)
	if err != nil {
		return err
	}
	seen, err := admin.Seen(c.Context)
	if err != nil {
		return err
	}
	repair := c.Bool("repair")
	if !seen {
		if repair || c.IsSet("downstream") {
			return &cliutil.Exit{Code: cliutil.ExitDataErr, Err: fmt.Errorf("downstream %s: this Redis holds nothing of it", downstream)}
		}
		return nil
	}
	stats, err := admin.Stats(c.Context, true)
	if err != nil {
		return err
	}
	for _, text := range []string{need(stats), cmdline.Exposure(stats.Policy)} {
		if text == "" {
			continue
		}
		all.Note++
		n := redisurl.Problem{Severity: redisurl.Note, Text: "downstream " + downstream + ": " + text}
		if err := print(finding{n.Severity.String(), n.Node, n.Text, n.Fix}, n.String()); err != nil {
			return err
		}
	}
	faults, err := admin.Books(c.Context, repair)
	if err != nil {
		return err
	}
	tell := func(faults []shaper.BookFault, severity, fix string, n *int) error {
		for _, f := range faults {
			*n += f.Count
			fix := fix
			if fix == "" {
				fix = f.Mended()
			}
			line := bookFault{severity, downstream, f.Kind, f.Count, f.Tenant, f.Of, f.String(), fix}
			if err := print(line, fmt.Sprintf("%s: downstream %s: %s: %s", severity, downstream, line.Text, line.Fix)); err != nil {
				return err
			}
		}
		return nil
	}
	if repair {
		if err := tell(faults, "mended", "", &all.Mended); err != nil {
			return err
		}
		if faults, err = admin.Books(c.Context, false); err != nil {
			return err
		}
	}
	for _, f := range faults {
		fix := "shaper doctor --repair --downstream " + downstream
		if f.Kind == "parked" {
			fix = "set that field, as with shaper tenants set"
		}
		if err := tell([]shaper.BookFault{f}, "books", fix, &all.Books); err != nil {
			return err
		}
	}
	return nil
}

// tickets looks at asynq's queue, which carries them from schedulers to workers.
func tickets(c *cli.Context, rdb redis.UniversalClient, downstream string, all *diagnosis, print func(any, string) error) error {
	b, err := workers.Backlog(c.Context, rdb, downstream)
	if err != nil {
		return err
	}
	tell := func(text, fix string) error {
		all.Tickets++
		return print(ticketFault{"tickets", downstream, text, fix}, fmt.Sprintf("tickets: downstream %s: %s: %s", downstream, text, fix))
	}
	for _, name := range b.Strangers {
		if err := tell("asynq server "+name+" takes its tickets, and is no pool of it", "stop it, or have it serve other asynq queues"); err != nil {
			return err
		}
	}
	switch {
	case b.Stuck != "":
		return tell(b.Stuck, "shaper daemons release no more until then")
	case b.Why() != "":
		return tell(fmt.Sprintf("%s: %d tickets wait", b.Why(), b.Tickets), "look at the log of its daemons")
	}
	return nil
}

// What Redis keeps of a job, in bytes: while it waits, besides its payload, and once it has ended.
const (
	waitingSize = 300
	endedSize   = 120
)

// need says how much of Redis the policies in force let the known tenants of a downstream take.
func need(s shaper.Stats) string {
	waiting, ended := 0, 0
	for _, t := range s.ByTenant {
		waiting += t.Effective.Depth
		ended += t.Effective.MaxEnds
	}
	ended = min(ended, s.Policy.MaxEnds)
	mb := func(n, size int) string { return fmt.Sprintf("%.1f MB", float64(n)*float64(size)/1e6) }
	return fmt.Sprintf("its policies let %d jobs wait, %s and their payloads (%s where each has %d KiB), and %d ended jobs be known, %s; tenants so far: %d",
		waiting, mb(waiting, waitingSize), mb(waiting, waitingSize+shaper.DefaultMaxPayload), shaper.DefaultMaxPayload>>10,
		ended, mb(ended, endedSize), len(s.ByTenant))
}

// String is what the last line says about the store.
func (d diagnosis) String() string {
	var parts []string
	for _, n := range []struct {
		n    int
		what string
	}{{d.Refuse, "refusal"}, {d.Warn, "warning"}, {d.Note, "note"}, {d.Books, "book fault"}, {d.Mended, "mended book fault"}, {d.Tickets, "ticket fault"}} {
		if n.n == 1 {
			parts = append(parts, "1 "+n.what)
		} else if n.n > 1 {
			parts = append(parts, fmt.Sprintf("%d %ss", n.n, n.what))
		}
	}
	with := ""
	if len(parts) > 0 {
		with = ": " + strings.Join(parts, ", ")
	}
	if d.Fit {
		return "fit to keep jobs" + with
	}
	return "unfit to keep jobs" + with
}
