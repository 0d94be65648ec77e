package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/redisurl"
)

// doctorPatience is how long the examination may take. A Redis that is slower is of no use to a queue.
const doctorPatience = 15 * time.Second

func doctorCommand() *cli.Command {
	return cliutil.Examples(&cli.Command{
		Name: "doctor", Usage: "tell whether a Redis is fit to keep jobs, and what to change",
		Description: "It looks at the settings and the state of the server, or of each primary of a cluster, and tries every command that\n" +
			"daemons and producers send, on keys of its own; nothing stays. The worst comes first. `shaper run` looks at the same\n" +
			"when it starts, and does not start where a line says refuse.\n\n" +
			"Exit codes: 0 fit, perhaps with warnings; 1 unfit; 69 it does not answer; 64 usage.",
		Flags:  append(cmdline.StoreFlags(), cmdline.JSONFlag()),
		Action: cmdline.Action(doctor),
	},
		"shaper doctor --redis redis://10.0.0.5/0",
		"shaper doctor --json | jq -r 'select(.severity == \"refuse\") | .fix'")
}

// finding is a redisurl.Problem in JSON.
type finding struct {
	Severity string `json:"severity"`
	Node     string `json:"node"`
	Text     string `json:"text"`
	Fix      string `json:"fix"`
}

// diagnosis is the last line: how many findings there are of each severity.
type diagnosis struct {
	Fit    bool `json:"fit"`
	Refuse int  `json:"refuse"`
	Warn   int  `json:"warn"`
	Note   int  `json:"note"`
}

func doctor(c *cli.Context) error {
	if _, err := cliutil.Args(c); err != nil {
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
		print = func(_ any, text string) error { _, err := fmt.Fprintln(c.App.Writer, text); return err }
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
	if err := print(all, s.Describe+" is "+all.String()); err != nil {
		return err
	}
	switch {
	case away:
		return &cliutil.Exit{Code: cliutil.ExitUnavailable}
	case !all.Fit:
		return &cliutil.Exit{Code: cliutil.ExitFailed}
	}
	return nil
}

// String is what the last line says of the store.
func (d diagnosis) String() string {
	var parts []string
	for _, n := range []struct {
		n    int
		what string
	}{{d.Refuse, "refusal"}, {d.Warn, "warning"}, {d.Note, "note"}} {
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
