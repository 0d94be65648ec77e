package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/shaper"
)

// checkPrefix begins the keys of `shaper check`, apart from those of the queues.
const checkPrefix = "shaper:check"

// checkDeadline is how long a check waits for Redis: longer than a service would, since each check
// makes a new connection.
const checkDeadline = time.Second

func checkCommand() *cli.Command {
	return cliutil.Examples(&cli.Command{
		Name: "check", Usage: "ask limits whether something may happen now, and count it against them if it may",
		Description: "If all rules pass, it counts against each of them; if one refuses, nothing is counted. Limits live in Redis,\n" +
			"under " + checkPrefix + ":, apart from the queues. Everyone who checks rules of the same names shares them.\n\n" +
			"Exit codes: 0 allowed; 75 refused, try again later; 65 more than can ever pass; 64 usage;\n" +
			"69 Redis does not answer and a rule says on_failure=closed, or there is no store at all.",
		Flags: append([]cli.Flag{
			cmdline.RulesFlag("rule", "a limit"),
			&cli.StringFlag{Name: "key", Usage: "`NAME` of the one who asks: a client, a tenant, an address"},
			&cli.Int64Flag{Name: "n", Usage: "ask for `N` at once; 0 looks and takes nothing", Value: 1},
			&cli.StringFlag{Name: "downstream", Usage: "`NAME` of what is asked for, for rules with per=downstream", Value: shaper.DefaultName},
			cmdline.JSONFlag(),
		}, cmdline.StoreFlags()...),
		Action: cmdline.Action(check),
	},
		"shaper check --rule 'token_bucket 10/s burst 100' --key acme",
		"# two limits at once, five units, in a script",
		"shaper check --rule 'sliding_log 3/60s' --rule 'fixed_window 1000/d name=daily per=global' --key acme --n 5 || exit",
		"# how much is left; takes nothing",
		"shaper check --rule 'fixed_window 1000/d name=daily' --key acme --n 0 --json | jq .remaining")
}

func check(c *cli.Context) error {
	if _, err := cliutil.Args(c); err != nil {
		return err
	}
	rules, err := checkedRules(c)
	if err != nil {
		return err
	}
	s, err := cmdline.OpenLazily(c, "shaper-check")
	if err != nil {
		return err
	}
	defer closeStore(s)
	p, err := policing.New(policing.Config{Rules: rules, Redis: s.Client, Prefix: checkPrefix, Tag: "check", Deadline: checkDeadline})
	if err != nil {
		return cliutil.Usagef("--rule: %w", err)
	}
	defer func() { _ = p.Close() }() // it cannot fail: it stops timers
	v, err := p.Check(c.Context, policing.Subject{Downstream: c.String("downstream"), Tenant: c.String("key")}, c.Int64("n"))
	if errors.Is(err, buckets.ErrKey) {
		return fmt.Errorf("--key: %w", err)
	}
	if err != nil {
		return err
	}
	if v.Degraded {
		fmt.Fprintf(c.App.ErrWriter, "shaper: %s does not answer: the on_failure of each rule decides\n", s.Describe)
	}
	if err := printVerdict(c, v); err != nil || v.Allowed {
		return err
	}
	return &cliutil.Exit{Code: codeOfRefusal(v)} // the reason was printed
}

// checkedRules returns the rules of the command line: one at least, with a key and a number that
// fit.
func checkedRules(c *cli.Context) ([]policing.Rule, error) {
	rules, err := cmdline.Rules(c, "rule")
	switch {
	case err != nil:
		return nil, err
	case len(rules) == 0:
		return nil, cliutil.Usagef("missing flag --rule: want at least one, such as --rule 'token_bucket 10/s burst 100'")
	case c.String("key") == "":
		return nil, cliutil.Usagef("missing flag --key: want the name of the one who asks")
	case c.Int64("n") < 0:
		return nil, cliutil.Usagef("--n \"%d\": want 0 or more", c.Int64("n"))
	}
	for _, r := range rules {
		if r.Heavy != 0 {
			return nil, cliutil.Usagef("--rule %q: want a rule for all: only a process that sees every key can tell which are heavy", r)
		}
	}
	return rules, nil
}

// codeOfRefusal is the exit code for a verdict that does not allow.
func codeOfRefusal(v policing.Verdict) int {
	switch {
	case v.Unavailable:
		return cliutil.ExitUnavailable
	case v.RetryAfter == buckets.Never:
		return cliutil.ExitDataErr
	}
	return cliutil.ExitTempFail
}
