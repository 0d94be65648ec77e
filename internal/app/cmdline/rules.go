package cmdline

import (
	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/policing"
)

// RulesFlag is a flag for rules as policing.ParseRule reads them; each use of the flag adds a rule.
func RulesFlag(name, usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: name, Usage: usage + ": `RULE`, such as 'token_bucket 10/s burst 100' or 'fixed_window 1000/d name=daily per=downstream'; may be repeated"}
}

// Rules returns the rules that a RulesFlag was given. A rule that it cannot read is a usage error.
func Rules(c *cli.Context, name string) ([]policing.Rule, error) {
	var rules []policing.Rule
	for _, text := range c.StringSlice(name) {
		r, err := policing.ParseRule(text)
		if err != nil {
			return nil, cliutil.Usagef("--%s: %w", name, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// RuleTexts writes rules as RulesFlag takes them, each with the name that refusals give it.
func RuleTexts(rules []policing.Rule) []string {
	if all, err := policing.Named(rules); err == nil {
		rules = all
	}
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	return texts
}
