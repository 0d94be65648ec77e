package config

import (
	"strings"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/setting"
)

// settings makes the keys for a table's fields.
func (d *decoder) settings(values []setting.Value) []field {
	fields := make([]field, len(values))
	for i, v := range values {
		fields[i] = field{v.Name, func(n node) { d.set(v, n) }}
	}
	return fields
}

// set reads a field. The value is checked as soon as it is read, which puts the error at its place,
// and is unset again if it is wrong.
func (d *decoder) set(v setting.Value, n node) {
	if r, ok := v.Pointer().(*buckets.Rate); ok {
		d.rate(r, n)
		return
	}
	text, _ := scalar(n.Node)
	want := v.Parse(text)
	if want == "" {
		want = v.Check()
	}
	if want != "" {
		d.wrong(n, want)
		v.Unset()
	}
}

// rate reads a rate into p.
func (d *decoder) rate(p *buckets.Rate, n node) {
	text, ok := d.text(n, "events per duration, such as 10/s, 600/m or 1/90s")
	if !ok {
		return
	}
	v, err := buckets.ParseRate(clip.Value(text))
	if err != nil {
		// The message quotes the value, and the path says that it is about a rate.
		d.fail(n, strings.Replace(err.Error(), buckets.ErrRate.Error()+": ", "", 1))
		return
	}
	*p = v
}
