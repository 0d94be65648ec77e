package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/shaper"
)

func topCommand() *cli.Command {
	every, looks := time.Second, 0
	return cliutil.Examples(&cli.Command{
		Name: "top", Usage: "watch a downstream and its busy tenants, until interrupted",
		Flags: cmdline.Flags(
			cmdline.PositiveDuration("interval", "look every `DURATION`", &every),
			cmdline.Whole("looks", "end after `N` looks", &looks)),
		Action: withDesk(func(c *cli.Context, d *desk) error {
			if _, err := cliutil.Args(c); err != nil {
				return err
			}
			return watch(c.Context, d, every, looks)
		}),
	}, "shaper top --downstream transcoder", "shaper top --interval 5s --json >> flow.jsonl")
}

// live is stats with what happened since the last look.
type live struct {
	At               time.Time `json:"at"`
	StartedPerSecond float64   `json:"started_per_second"`
	stats
}

// watch shows the current state again and again: in the same place on a terminal, elsewhere as a
// new block or JSON line each time. The first look must succeed; if a later one fails, watch says
// so and goes on.
func watch(ctx context.Context, d *desk, every time.Duration, looks int) error {
	p := newPane(d.out)
	defer p.close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	last, lastAll, lastAt := map[string]int64{}, int64(0), time.Time{}
	for n := 1; ; n++ {
		s, err := d.Stats(ctx, false)
		now := time.Now()
		switch {
		case ctx.Err() != nil: // interrupted, which is how it ends
			return nil
		case err != nil && n == 1:
			return err
		case err != nil:
			p.show(fmt.Sprintf("%s  no answer: %v", now.Format(time.TimeOnly), err))
		default:
			all := 0.0
			if !lastAt.IsZero() {
				all = max(0, float64(s.Counters.Started-lastAll)/now.Sub(lastAt).Seconds())
			}
			if err := d.showLive(p, s, now, all, flowOf(s, last, now.Sub(lastAt))); err != nil {
				return err
			}
			last, lastAll, lastAt = startedBy(s), s.Counters.Started, now
		}
		if n == looks {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func startedBy(s shaper.Stats) map[string]int64 {
	started := make(map[string]int64, len(s.ByTenant))
	for _, t := range s.ByTenant {
		started[t.Name] = t.Counters.Started
	}
	return started
}

// flowOf returns the starts a second of each busy tenant since the last look. A tenant that was
// idle at that look counts from the next look on.
func flowOf(s shaper.Stats, last map[string]int64, since time.Duration) map[string]float64 {
	flow := map[string]float64{}
	for _, t := range s.ByTenant {
		if before, known := last[t.Name]; known && since > 0 {
			flow[t.Name] = float64(t.Counters.Started-before) / since.Seconds()
		}
	}
	return flow
}

func (d *desk) showLive(p *pane, s shaper.Stats, now time.Time, all float64, flow map[string]float64) error {
	if d.json != nil {
		return d.json.Print(live{now, all, newStats(s)})
	}
	var text bytes.Buffer
	frame := *d
	frame.out = &text
	facts := statsFacts(s)
	facts[0][1] += ", " + now.Format(time.TimeOnly)
	facts[2][1] += fmt.Sprintf(", %.1f starts a second", all)
	if err := frame.facts(facts...); err != nil {
		return err
	}
	slices.SortStableFunc(s.ByTenant, func(a, b shaper.TenantInfo) int { return b.Level() - a.Level() })
	var rows [][]string
	for _, t := range s.ByTenant {
		rows = append(rows, []string{clip.Cell(t.Name, 20), t.Effective.Rate.String(), fmt.Sprintf("%.1f", flow[t.Name]),
			fmt.Sprintf("%d/%d", t.Level(), t.Effective.Depth), short(t.Oldest), fmt.Sprint(t.Out + t.Running),
			fmt.Sprint(t.Counters.Failed), fmt.Sprint(t.Dead), tenantState(t)})
	}
	if len(rows) > 0 {
		fmt.Fprintln(&text)
		if err := table(&text, []string{"TENANT", ">RATE", ">STARTS/S", ">WAITING", ">OLDEST", ">IN FLIGHT", ">FAILED", ">DEAD", "STATE"}, rows); err != nil {
			return err
		}
	}
	p.show(text.String())
	return nil
}

// pane shows texts: on a terminal each replaces the last, on a screen of its own that is gone at
// the end; elsewhere one below the other.
type pane struct {
	out           io.Writer
	live          bool
	columns, rows int
	shown         int
}

func newPane(out io.Writer) *pane {
	p := &pane{out: out}
	if p.columns, p.rows, p.live = cmdline.Screen(out); p.live {
		fmt.Fprint(out, "\x1b[?1049h\x1b[?25l")
	}
	return p
}

func (p *pane) show(text string) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if !p.live {
		if p.shown++; p.shown > 1 {
			fmt.Fprintln(p.out)
		}
		fmt.Fprintln(p.out, strings.Join(lines, "\n"))
		return
	}
	p.columns, p.rows, _ = cmdline.Screen(p.out) // the terminal may have been resized
	if hidden := len(lines) - (p.rows - 1); hidden > 0 {
		lines = append(lines[:p.rows-2], fmt.Sprintf("… and %d more lines", hidden+1))
	}
	for i, line := range lines {
		lines[i] = clip.Cell(line, p.columns)
	}
	fmt.Fprint(p.out, "\x1b[H"+strings.Join(lines, "\x1b[K\n")+"\x1b[K\n\x1b[J")
}

func (p *pane) close() {
	if p.live {
		fmt.Fprint(p.out, "\x1b[?25h\x1b[?1049l")
	}
}
