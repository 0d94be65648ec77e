package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/shaper"
)

// algorithms are the admission checks, each with the keys that its bucket's size may have.
var algorithms = []struct {
	name  string
	sizes []string
}{
	{"token_bucket", []string{"burst"}},
	{"fixed_window", nil},
	{"sliding_log", nil},
	{"sliding_counter", nil},
	{"leaky_bucket", []string{"burst", "depth"}},
}

const wantRules = "a list of rules, such as - token_bucket: 100/s"

// admit reads the rules of a downstream. A mistake that shows only in all of them together
// is reported at the list.
func (d *decoder) admit(n node, p *shaper.DownstreamPolicy) {
	before := len(d.found)
	p.Admit = d.rules(n)
	if len(d.found) > before {
		p.Admit = nil
		return
	}
	if err := p.Validate(); err != nil {
		d.wrongRule(n, err)
		p.Admit = nil
	}
}

// rules reads a list of rules with different names.
func (d *decoder) rules(n node) []policing.Rule {
	if many := len(n.Content); kind(n.Node) == list && many > policing.MaxRules {
		d.fail(n, fmt.Sprintf("%d rules: want at most %d", many, policing.MaxRules))
		return nil
	}
	var rules []policing.Rule
	taken := map[string]bool{}
	d.items(n, wantRules, func(n node) {
		rule, name := d.rule(n)
		if rule.Name != "" && taken[rule.Name] {
			d.wrong(name, "a name that no other rule of the downstream has")
		}
		taken[rule.Name] = true
		rules = append(rules, rule)
	})
	return rules
}

// draft is a rule that is being read: what was written, and where.
type draft struct {
	algorithm string
	sizes     []string
	rate      buckets.Rate
	at        map[string]node
}

// rule reads one algorithm with its rate, the size of a bucket, and the options of a rule. It
// also returns where the rule's name is written.
func (d *decoder) rule(n node) (r policing.Rule, name node) {
	w := draft{at: map[string]node{}}
	var names []string
	var fields []field
	for _, a := range algorithms {
		names = append(names, a.name)
		fields = append(fields, field{a.name, func(n node) {
			if w.algorithm != "" {
				d.fail(n, "a second algorithm in one rule: want a rule of its own")
				return
			}
			w.algorithm, w.sizes, w.at[a.name] = a.name, a.sizes, n
			d.rate(&w.rate, n)
		}})
	}
	for _, key := range []string{"burst", "depth", "name", "per", "cost"} {
		fields = append(fields, field{key, func(n node) { w.at[key] = n }})
	}
	before := len(d.found)
	d.fields(n, fields...)
	size := d.size(w)
	switch {
	case len(d.found) > before: // more errors would only repeat it
	case w.algorithm == "":
		d.fail(n, "no algorithm: want "+setting.Or(names))
	default:
		r = d.finish(w, size)
	}
	return r, w.at["name"]
}

// size reads the capacity of a bucket; 0 means that none is written.
func (d *decoder) size(w draft) int64 {
	var size int64
	for _, key := range []string{"burst", "depth"} {
		n, written := w.at[key]
		if !written {
			continue
		}
		if w.algorithm != "" && !slices.Contains(w.sizes, key) {
			d.fail(n, "want it only beside "+setting.Or(sized(key)))
			return 0
		}
		if size != 0 {
			d.fail(n, "burst and depth: want only one of them")
			return 0
		}
		size = d.count(n, buckets.MaxLimit)
	}
	return size
}

// finish makes a rule out of a draft, option by option, and reports each mistake at its place.
func (d *decoder) finish(w draft, size int64) policing.Rule {
	r, err := policing.RuleOf(w.algorithm, w.rate, size)
	if err != nil {
		d.wrongRule(w.at[w.algorithm], err)
		return policing.Rule{}
	}
	if n, ok := w.at["name"]; ok {
		r.Name = d.ruleName(n)
	}
	if n, ok := w.at["per"]; ok {
		text, _ := scalar(n.Node)
		switch text {
		case policing.PerTenant.String():
		case policing.PerDownstream.String():
			r.Per = policing.PerDownstream
		default:
			d.wrong(n, "tenant or downstream")
		}
	}
	if n, ok := w.at["cost"]; ok {
		r.Cost = d.count(n, policing.MaxCost)
		if r.Cost > r.Params.Limit {
			d.wrong(n, fmt.Sprintf("at most %d, or no job could ever pass", r.Params.Limit))
		}
	}
	return r
}

func (d *decoder) ruleName(n node) string {
	name, _ := scalar(n.Node)
	probe := policing.Rule{Name: name, Params: buckets.Params{Algorithm: buckets.TokenBucket, Limit: 1, Rate: buckets.PerSecond(1)}}
	if name == "" || probe.Validate() != nil {
		d.wrong(n, "1 to 64 of letters, digits, '.', '_' and '-', the first a letter or digit")
		return ""
	}
	return name
}

// count reads a whole number of at least 1.
func (d *decoder) count(n node, most int) int64 {
	var v int
	row := setting.Whole("", "", "", func(v *int) *int { return v }, 1, most, 0)
	d.settings(setting.Table[int]{row}.Of(&v))[0].read(n)
	return int64(v)
}

// wrongRule reports what package policing or buckets says about a rule, without the words that the
// path makes superfluous.
func (d *decoder) wrongRule(n node, err error) {
	text := err.Error()
	for _, sentinel := range []error{policing.ErrRule, buckets.ErrParameter, buckets.ErrRate} {
		if errors.Is(err, sentinel) {
			text = strings.Replace(text, sentinel.Error()+": ", "", 1)
		}
	}
	d.fail(n, text)
}

// sized lists the algorithms that a key for the size may stand beside.
func sized(key string) []string {
	var names []string
	for _, a := range algorithms {
		if slices.Contains(a.sizes, key) {
			names = append(names, a.name)
		}
	}
	return names
}
