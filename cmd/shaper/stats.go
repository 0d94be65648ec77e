package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/shaper"
)

func statsCommand() *cli.Command {
	n := 0
	return cliutil.Examples(&cli.Command{
		Name: "stats", Usage: "show how a downstream and its tenants are doing",
		Flags: cmdline.Flags(cmdline.Whole("top", "list instead the `N` tenants that offer the most over HTTP, and those that are refused the most", &n)),
		Action: withDesk(func(c *cli.Context, d *desk) error {
			if _, err := cliutil.Args(c); err != nil {
				return err
			}
			if n > 0 {
				return d.showTop(c, n)
			}
			return showStats(c, d)
		}),
	}, "shaper stats --downstream transcoder", "shaper stats --json | jq .level", "shaper stats --top 10")
}

// stats is shaper.Stats in JSON.
type stats struct {
	Downstream string           `json:"downstream"`
	Paused     bool             `json:"paused"`
	Tenants    int              `json:"tenants"`
	Busy       int              `json:"busy"`
	Level      int              `json:"level"`
	Waiting    int              `json:"waiting"`
	Delayed    int              `json:"delayed"`
	Out        int              `json:"out"`
	Running    int              `json:"running"`
	Dead       int              `json:"dead"`
	OldestMS   int64            `json:"oldest_ms"`
	Pools      int              `json:"pools"`
	Places     int              `json:"places"`
	Admit      []string         `json:"admit"` // the admission rules, as --admit takes them
	Counters   map[string]int64 `json:"counters"`
}

func showStats(c *cli.Context, d *desk) error {
	s, err := d.Stats(c.Context, true)
	if err != nil {
		return err
	}
	if d.json != nil {
		return d.json.Print(newStats(s))
	}
	if err := d.facts(append(statsFacts(s), admitFacts(s.Policy.Admit)...)...); err != nil || len(s.ByTenant) == 0 {
		return err
	}
	fmt.Fprintln(d.out)
	return d.printTenants(s.ByTenant)
}

func newStats(s shaper.Stats) stats {
	return stats{s.Downstream, s.Paused, s.Tenants, s.Busy, s.Level(), s.Waiting, s.Delayed, s.Out, s.Running, s.Dead,
		s.Oldest.Milliseconds(), s.Pools, s.Places, cmdline.RuleTexts(s.Policy.Admit), wire.Counters(s.Counters)}
}

// statsFacts are the state of a downstream, for people.
func statsFacts(s shaper.Stats) [][2]string {
	rate := "no rate of its own"
	if !s.Policy.Rate.IsZero() {
		rate = s.Policy.Rate.String() + " for all tenants together"
	}
	return [][2]string{
		{"downstream", fmt.Sprintf("%s, %s, %s", s.Downstream, pause(s.Paused, s.PausedUntil), rate)},
		{"waiting", jobs(s.Level()) + waitingText(s.Delayed, s.Oldest)},
		{"in flight", fmt.Sprintf("%d running, %d tickets out", s.Running, s.Out)},
		{"workers", workersText(s)},
		{"jobs", countersText(s.Counters)},
		{"tenants", fmt.Sprintf("%d known, %d busy", s.Tenants, s.Busy)},
	}
}

// admitFacts are the admission rules of a downstream, one fact each.
func admitFacts(rules []policing.Rule) [][2]string {
	var facts [][2]string
	for _, rule := range cmdline.RuleTexts(rules) {
		facts = append(facts, [2]string{"admits", rule})
	}
	return facts
}

func workersText(s shaper.Stats) string {
	if s.Pools == 0 {
		return "none: jobs wait until a `shaper run` with the role worker serves this downstream"
	}
	pools := "1 pool"
	if s.Pools > 1 {
		pools = fmt.Sprintf("%d pools", s.Pools)
	}
	return fmt.Sprintf("%s with room for %s at a time", pools, jobs(s.Places))
}
