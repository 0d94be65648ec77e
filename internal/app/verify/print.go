package verify

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/history"
)

// shown is how many violations Print shows; JSON has all.
const shown = 10

const instant = "2006-01-02 15:04:05.000000"

func (p Promise) String() string {
	how := "held"
	if n := len(p.Broken); n > 0 {
		how = "BROKEN " + count(n, "time")
	}
	return p.Name + ": " + how + ", " + p.Figure
}

// Print writes the findings for people: a line for each promise, what else happened, what was not
// judged, and the first violations.
func (v Findings) Print(w io.Writer) error {
	var b strings.Builder
	b.WriteString(v.Of + ": " + count(v.Starts, "start"))
	if !v.From.IsZero() {
		fmt.Fprintf(&b, " in %s, from %s", v.To.Sub(v.From).Round(time.Millisecond), v.From.Format(instant))
	}
	b.WriteByte('\n')
	for _, p := range v.Promises {
		fmt.Fprintln(&b, p)
	}
	if v.Instant != "" {
		fmt.Fprintln(&b, "a start is:", v.Instant)
	}
	for _, s := range v.Seen {
		fmt.Fprintln(&b, "seen:", s)
	}
	for _, s := range v.Unjudged {
		fmt.Fprintln(&b, "not judged:", s)
	}
	all := v.Violations()
	for i, f := range all {
		if i == shown {
			fmt.Fprintf(&b, "  and %s more\n", count(len(all)-shown, "violation"))
			break
		}
		fmt.Fprintf(&b, "  %s  %s: %s: %s\n", v.Wall(f).Format(instant), f.Check, whose(f), f.What)
	}
	_, err := io.WriteString(w, cliutil.Printable(b.String()))
	return err
}

// whose says what a violation is about.
func whose(f history.Violation) string {
	switch {
	case f.Tenant == "":
		return "job " + f.ID
	case f.ID == "":
		return "tenant " + f.Tenant
	}
	return "tenant " + f.Tenant + ", job " + f.ID
}

// Line is the findings in one line: the figure of the first promise, and which were broken.
func (v Findings) Line() string {
	text := "checked: "
	if len(v.Promises) > 0 {
		text += v.Promises[0].Figure
	}
	var broken []string
	for _, p := range v.Promises {
		if !p.Held() {
			broken = append(broken, p.Name)
		}
	}
	if len(broken) > 0 {
		return text + "; " + strings.Join(broken, ", ") + " BROKEN, see shaper verify"
	}
	return text + fmt.Sprintf("; all %d promises held", len(v.Promises))
}

// PrintJSON writes the findings for programs: an object for each promise, for each violation, and
// for what was not judged; the last object sums up.
func (v Findings) PrintJSON(l *cliutil.JSONLines) error {
	var lines []any
	for _, p := range v.Promises {
		lines = append(lines, struct {
			Promise    string `json:"promise"`
			Held       bool   `json:"held"`
			Figure     string `json:"figure"`
			Violations int    `json:"violations"`
		}{p.Name, p.Held(), p.Figure, len(p.Broken)})
	}
	for _, f := range v.Violations() {
		lines = append(lines, struct {
			Violation string    `json:"violation"`
			Tenant    string    `json:"tenant"`
			ID        string    `json:"id"`
			At        time.Time `json:"at"`
			What      string    `json:"what"`
		}{f.Check, f.Tenant, f.ID, v.Wall(f).UTC(), f.What})
	}
	for _, s := range v.Seen {
		lines = append(lines, map[string]string{"seen": s})
	}
	for _, s := range v.Unjudged {
		lines = append(lines, map[string]string{"unjudged": s})
	}
	lines = append(lines, struct {
		Of     string    `json:"of"`
		Held   bool      `json:"held"`
		Starts int       `json:"starts"`
		From   time.Time `json:"from"`
		To     time.Time `json:"to"`
		Start  string    `json:"start,omitempty"` // what counts as one
	}{v.Of, v.Held(), v.Starts, v.From.UTC(), v.To.UTC(), v.Instant})
	for _, line := range lines {
		if err := l.Print(line); err != nil {
			return err
		}
	}
	return nil
}
