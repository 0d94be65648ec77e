package config

import (
	"strconv"

	"github.com/jobshaper/jobshaper/buckets"
)

// algorithms are the admission checks, and whether each has a size besides its rate.
var algorithms = []struct {
	name  string
	sized bool
}{
	{"token_bucket", true},
	{"fixed_window", false},
	{"sliding_log", false},
	{"sliding_counter", false},
	{"leaky_bucket", true},
}

func (d *decoder) rules(n node) []Rule {
	var rules []Rule
	d.items(n, "a list of rules, such as - token_bucket: 100/s", func(n node) { rules = append(rules, d.rule(n)) })
	return rules
}

// rule reads one algorithm with its rate, and its size where it has one.
func (d *decoder) rule(n node) Rule {
	var r Rule
	r.Line, _ = position(n.Node)
	var names []string
	var fields []field
	var burst *node
	sized := false
	for _, a := range algorithms {
		names = append(names, a.name)
		fields = append(fields, field{a.name, func(n node) {
			if r.Algorithm != "" {
				d.fail(n, "a second algorithm in one rule: want a rule of its own")
				return
			}
			r.Algorithm, sized = a.name, a.sized
			d.rate(a.name, &r.Rate).read(n)
		}})
	}
	fields = append(fields, field{"burst", func(n node) { burst = &n; r.Burst = d.burst(n) }})
	before := len(d.found)
	d.fields(n, fields...)
	switch {
	case len(d.found) > before:
	case r.Algorithm == "":
		d.fail(n, "no algorithm: want "+list(names))
	case burst != nil && !sized:
		d.fail(*burst, "want it only beside token_bucket or leaky_bucket")
	}
	return r
}

func (d *decoder) burst(n node) int64 {
	text, _ := scalar(n.Node)
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !wholeRE.MatchString(text) || v < 1 || v > buckets.MaxEvents {
		d.wrong(n, "a whole number, 1 to "+strconv.Itoa(buckets.MaxEvents))
		return 0
	}
	return v
}
