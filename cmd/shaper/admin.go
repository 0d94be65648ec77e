package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/store"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// desk is what an operator's command works with.
type desk struct {
	*shaper.Admin
	client     *shaper.Client
	store      *store.Store
	downstream string
	out        io.Writer
	json       *cliutil.JSONLines // nil for people
}

// withDesk turns a function that needs a desk into a command's action.
func withDesk(f func(*cli.Context, *desk) error) cli.ActionFunc {
	return cmdline.Action(func(c *cli.Context) (err error) {
		d := &desk{downstream: c.String("downstream"), out: c.App.Writer}
		if c.Bool("json") {
			d.json = cliutil.NewJSONLines(c.App.Writer)
		}
		if err := shaper.ValidName("downstream", d.downstream); err != nil { // before the store is asked
			return err
		}
		s, err := cmdline.Open(c, "shaper-admin")
		if err != nil {
			return err
		}
		defer closeStore(s)
		d.store = s
		if d.Admin, err = shaper.NewAdmin(s.Client, d.downstream); err != nil {
			return err
		}
		if d.client, err = shaper.NewClient(s.Client, d.downstream, shaper.ClientConfig{}); err != nil {
			return err
		}
		return d.suggest(c.Context, f(c, d))
	})
}

// suggest adds to an error about a name that was never seen the name that was probably meant.
func (d *desk) suggest(ctx context.Context, err error) error {
	var unseen *shaper.UnseenError
	if !errors.As(err, &unseen) {
		return err
	}
	var near string
	if unseen.Tenant != "" {
		names, _ := d.Names(ctx, false) // without them the error still says what it is about
		near = cliutil.DidYouMean(unseen.Tenant, names)
	} else {
		names, _ := workers.Served(ctx, d.store.Client)
		near = cliutil.DidYouMean(unseen.Downstream, names)
	}
	if near == "" {
		near = ": no policy was set for it, and no job was offered to it"
	}
	return fmt.Errorf("%w%s", err, near)
}

// closeStore closes connections at the end of a command, when a failure changes nothing any more.
func closeStore(s *store.Store) { _ = s.Close() }

// tell prints v as JSON, or else a line for people.
func (d *desk) tell(v any, format string, args ...any) error {
	if d.json != nil {
		return d.json.Print(v)
	}
	_, err := fmt.Fprintln(d.out, cliutil.Printable(fmt.Sprintf(format, args...)))
	return err
}

// table prints rows with their columns aligned, to the right where the column's head begins with
// ">", as it does for numbers.
func table(w io.Writer, heads []string, rows [][]string) error {
	head, right, widths := make([]string, len(heads)), make([]bool, len(heads)), make([]int, len(heads))
	for i := range heads {
		head[i], right[i] = strings.CutPrefix(heads[i], ">")
	}
	all := append([][]string{head}, rows...)
	for _, row := range all {
		for i := range row {
			row[i] = cliutil.Printable(row[i])
		}
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			blank := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if right[i] {
				cell = blank + cell
			} else {
				cell += blank
			}
			line.WriteString(cell + "  ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// short formats a duration for a table, rounded to what matters there.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return strings.TrimSuffix(d.Round(time.Second).String(), "0s")
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// ago formats how long ago something happened.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return short(max(time.Since(t), time.Millisecond))
}

// pause says whether something is paused, and for how long.
func pause(paused bool, until time.Time) string {
	switch {
	case !paused:
		return "open"
	case until.IsZero():
		return "paused"
	}
	return "paused for " + short(time.Until(until))
}

// tenantState tells whether a tenant's jobs leave, and whether its downstream takes them.
func tenantState(t shaper.TenantInfo) string {
	state := pause(t.Paused, t.PausedUntil)
	if t.Parked != "" {
		state = "parked: " + t.Parked
	}
	if t.Throttled() {
		state += fmt.Sprintf(", throttled %d times in a row", t.InARow)
	}
	return state
}
