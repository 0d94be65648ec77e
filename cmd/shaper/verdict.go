package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/policing"
)

// printVerdict prints what came of a check, as text or as JSON.
func printVerdict(c *cli.Context, v policing.Verdict) error {
	if c.Bool("json") {
		return cliutil.NewJSONLines(c.App.Writer).Print(wire.NewVerdict(v))
	}
	if _, err := fmt.Fprintln(c.App.Writer, verdictText(v)); err != nil {
		return err
	}
	var rows [][]string
	for _, r := range v.Rulings {
		limit, remaining, reset := "-", "-", "-" // nothing is known of a rule that was not asked
		if r.Asked {
			limit, remaining, reset = fmt.Sprint(r.Limit), fmt.Sprint(r.Remaining), exact(r.ResetAfter)
		}
		name, rule := r.Rule.Name, r.Rule
		rule.Name = "" // it has its own column
		rows = append(rows, []string{name, answer(r.Allowed), limit, remaining, exact(r.RetryAfter), reset, rule.String()})
	}
	return table(c.App.Writer, []string{"NAME", "ANSWER", ">LIMIT", ">REMAINING", ">RETRY AFTER", ">RESET AFTER", "RULE"}, rows)
}

// verdictText is a verdict in one line.
func verdictText(v policing.Verdict) string {
	left := ""
	if v.Remaining >= 0 {
		left = fmt.Sprintf(", %d left", v.Remaining)
	}
	switch {
	case v.Allowed:
		return "allowed" + left
	case v.Unavailable:
		return fmt.Sprintf("refused by %s, which needs Redis; try again in %s", v.Refused, exact(v.RetryAfter))
	case v.RetryAfter == buckets.Never:
		return fmt.Sprintf("refused by %s: more than can ever pass%s", v.Refused, left)
	}
	return fmt.Sprintf("refused by %s%s; try again in %s", v.Refused, left, exact(v.RetryAfter))
}
