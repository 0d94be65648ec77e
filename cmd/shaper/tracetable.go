package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/app/trace"
	"github.com/jobshaper/jobshaper/internal/cliutil"
)

// printTrace prints a limiter's answers, as a table or as JSON.
func printTrace(c *cli.Context, rows []trace.Row) error {
	return printRows(c, rows, []string{">AT", ">COST", "ANSWER", ">REMAINING", ">RETRY AFTER", ">RESET AFTER"}, func(r trace.Row) []string {
		return []string{trace.Seconds(r.At), fmt.Sprint(r.N), answer(r.Allowed), fmt.Sprint(r.Remaining), exact(r.RetryAfter), exact(r.ResetAfter)}
	})
}

// printQueueTrace prints a queue's answers, as a table or as JSON.
func printQueueTrace(c *cli.Context, rows []trace.QueueRow) error {
	return printRows(c, rows, []string{">AT", "ANSWER", ">WAIT", ">LEAVES AT", ">RETRY AFTER"}, func(r trace.QueueRow) []string {
		leaves := "-"
		if r.Allowed {
			leaves = trace.Seconds(r.At + r.LeavesIn.Microseconds())
		}
		return []string{trace.Seconds(r.At), answer(r.Allowed), exact(r.LeavesIn), leaves, exact(r.RetryAfter)}
	})
}

func printRows[R any](c *cli.Context, rows []R, heads []string, cells func(R) []string) error {
	if c.Bool("json") {
		out := cliutil.NewJSONLines(c.App.Writer)
		for _, r := range rows {
			if err := out.Print(r); err != nil {
				return err
			}
		}
		return nil
	}
	lines := make([][]string, len(rows))
	for i, r := range rows {
		lines[i] = cells(r)
	}
	return table(c.App.Writer, heads, lines)
}

func answer(allowed bool) string {
	if allowed {
		return "allow"
	}
	return "refuse"
}

// exact writes a duration in full, where short would lose digits.
func exact(d time.Duration) string {
	switch d {
	case 0:
		return "-"
	case buckets.Never:
		return "never"
	}
	return d.String()
}
