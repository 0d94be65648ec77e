package verify

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/internal/history"
)

// count is "12 345 starts".
func count(n int, what string) string {
	if n != 1 {
		if stem, ok := strings.CutSuffix(what, "y"); ok {
			what = stem + "ie"
		}
		what += "s"
	}
	return grouped(n) + " " + what
}

// grouped writes a number of five digits or more in groups of three.
func grouped(n int) string {
	s := strconv.Itoa(n)
	if len(s) < 5 {
		return s
	}
	var groups []string
	for ; len(s) > 3; s = s[:len(s)-3] {
		groups = append([]string{s[len(s)-3:]}, groups...)
	}
	return strings.Join(append([]string{s}, groups...), " ")
}

// short is a duration with as many digits as matter, in ms where people compare in ms.
func short(d time.Duration) string {
	if d.Abs() >= 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return strconv.FormatFloat(float64(d.Round(100*time.Microsecond))/float64(time.Millisecond), 'f', -1, 64) + " ms"
}

func tenants(h history.History) int {
	names := map[string]bool{}
	for _, e := range h {
		names[e.Tenant] = true
	}
	return len(names)
}

// ruleOf is the rule that a start came under.
func ruleOf(e history.Event, r history.Rule) history.Rule {
	if e.Under != nil {
		return *e.Under
	}
	return r
}

// closest names the gap that was the shortest compared with its interval.
func closest(h history.History, r history.Rule) string {
	last := map[string]history.Event{}
	text, least := "", time.Duration(0)
	for _, e := range h {
		before, ok := last[e.Tenant]
		last[e.Tenant] = e
		if !ok {
			continue
		}
		interval := min(ruleOf(before, r).Rate.Interval(), ruleOf(e, r).Rate.Interval())
		gap := time.Duration(e.At - before.At)
		if d := gap - interval; text == "" || d < least {
			text, least = fmt.Sprintf(", least gap %s at an interval of %s", short(gap), short(interval)), d
		}
	}
	return text
}

// latest says how long after its slot the latest start came.
func latest(h history.History, r history.Rule) string {
	var most history.Event
	late := time.Duration(-1 << 62)
	for _, e := range h {
		if d := time.Duration(e.Wall-e.Slot) * time.Microsecond; d > late {
			most, late = e, d
		}
	}
	if len(h) == 0 {
		return ""
	}
	return fmt.Sprintf(", the latest %s after its slot, of %s", short(late), short(ruleOf(most, r).Tolerance))
}
