package model

import (
	"maps"
	"slices"
)

// Clone returns a copy that shares nothing with d: what is done to one of them does not show in the
// other. So one state can be followed in many ways.
func (d *Downstream) Clone() *Downstream {
	c := *d
	c.Tenants = make(map[string]*Tenant, len(d.Tenants))
	for name, t := range d.Tenants {
		c.Tenants[name] = t.clone()
	}
	c.Pools = make(map[string]*Pool, len(d.Pools))
	for name, p := range d.Pools {
		pool := *p
		c.Pools[name] = &pool
	}
	c.Counts, c.runs, c.Fell = maps.Clone(d.Counts), maps.Clone(d.runs), maps.Clone(d.Fell)
	c.Log = slices.Clone(d.Log)
	for _, b := range []**Book{&c.Due, &c.Ready, &c.Out, &c.Running, &c.Apart, &c.oldest} {
		*b = (*b).clone()
	}
	return &c
}

func (t *Tenant) clone() *Tenant {
	c := *t
	copies := make(map[*Job]*Job, len(t.Jobs)) // a job is in several places, and its copy in the same
	same := func(j *Job) *Job {
		if copies[j] == nil {
			job := *j
			copies[j] = &job
		}
		return copies[j]
	}
	jobs := func(of map[string]*Job) map[string]*Job {
		m := make(map[string]*Job, len(of))
		for name, j := range of {
			m[name] = same(j)
		}
		return m
	}
	c.Jobs, c.owned = jobs(t.Jobs), jobs(t.owned)
	c.Ends = slices.Clone(t.Ends)
	for i, j := range c.Ends {
		c.Ends[i] = same(j)
	}
	c.Counts = maps.Clone(t.Counts)
	c.Fresh = slices.Clone(t.Fresh)
	for _, b := range []**Book{&c.Back, &c.Later, &c.Outs} {
		*b = (*b).clone()
	}
	return &c
}

func (b *Book) clone() *Book { return &Book{slices.Clone(b.lines), maps.Clone(b.at)} }
