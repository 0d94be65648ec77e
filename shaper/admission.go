package shaper

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/policing"
)

// Admission rules are asked inside the enqueue script, all or nothing, after everything else that
// may refuse a job: a job that a full bucket refuses takes nothing from them, and the whole
// decision costs one round trip. They are kept in the downstream's field `admit`, a line for each
// rule, its fields parted by tabs; see internal/queue/lua/lib/admit.lua.

// admitted holds the rules of one value of the field, ready to read what the script says of them.
type admitted struct {
	field  string
	rules  []policing.Rule
	limits []buckets.InScript
}

// newAdmitted checks rules and makes them ready.
func newAdmitted(rules []policing.Rule) (*admitted, error) {
	if len(rules) == 0 {
		return &admitted{}, nil
	}
	rules, err := policing.Named(rules)
	if err != nil {
		return nil, fmt.Errorf("admit: %w: %w", ErrInvalid, err)
	}
	a := &admitted{rules: rules}
	var lines []string
	for _, r := range a.rules {
		switch {
		case r.Per == policing.Global:
			return nil, &FieldError{"admit", r.String(), "per=tenant or per=downstream: the rules of a queue are kept beside it"}
		case r.Heavy != 0:
			return nil, &FieldError{"admit", r.String(), "a rule for all tenants: a queue does not know who is heavy"}
		}
		l, err := buckets.NewInScript(r.Params)
		if err != nil {
			return nil, fmt.Errorf("admit: %w: %w", ErrInvalid, err)
		}
		line := []string{r.Name, r.Per.String(), r.String()}
		for _, arg := range l.Args(max(r.Cost, 1)) {
			line = append(line, fmt.Sprint(arg))
		}
		lines = append(lines, strings.Join(line, "\t"))
		a.limits = append(a.limits, l)
	}
	a.field = strings.Join(lines, "\n")
	return a, nil
}

// readRules reads the rules of a downstream's field; what cannot be read is left out.
func readRules(field string) []policing.Rule {
	var rules []policing.Rule
	for line := range strings.SplitSeq(field, "\n") {
		if f := strings.Split(line, "\t"); len(f) > 3 {
			if r, err := policing.ParseRule(f[2]); err == nil {
				rules = append(rules, r)
			}
		}
	}
	return rules
}

// admissions remembers the rules that were read last. Its zero value is ready to use, and safe for
// concurrent use.
type admissions struct{ last atomic.Pointer[admitted] }

// verdict reads what the script says of one job: a row for each rule, and then the field that they
// were read from.
func (c *admissions) verdict(r *queue.Reply) *policing.Verdict {
	n := len(r.Fields) - 1
	if n < 1 {
		return nil
	}
	field, _ := r.Fields[n].(string)
	a := c.last.Load()
	if a == nil || a.field != field {
		var err error
		if a, err = newAdmitted(readRules(field)); err != nil || len(a.rules) != n {
			return nil
		}
		a.field = field
		c.last.Store(a)
	}
	rulings := make([]policing.Ruling, n)
	for i, rule := range a.rules {
		row, _ := r.Fields[i].([]any)
		d, err := a.limits[i].Decode(row, max(rule.Cost, 1))
		rulings[i] = policing.Ruling{Rule: rule, Asked: row != nil && (err == nil || d.RetryAfter == buckets.Never), Decision: d}
	}
	v := policing.Judge(rulings)
	return &v
}
