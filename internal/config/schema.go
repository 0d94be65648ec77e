package config

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/shaper"
)

func (d *decoder) readFile(n node, f *File) {
	d.fields(n,
		field{"redis", func(n node) { f.Redis = d.redisURL(n) }},
		field{"listen", func(n node) { f.Listen = d.address(n) }},
		field{"data_dir", func(n node) { f.DataDir = d.path(n) }},
		field{"downstreams", func(n node) {
			d.named(n, "downstream", func(name string, n node) { f.Downstreams = append(f.Downstreams, d.downstream(name, n)) })
			slices.SortFunc(f.Downstreams, func(a, b Downstream) int { return strings.Compare(a.Name, b.Name) })
		}},
	)
	if len(f.Downstreams) == 0 && len(d.found) == 0 {
		n.path = "downstreams"
		d.fail(n, "missing: want at least one downstream")
	}
}

// downstreamTable has the fields of a downstream that are not in its policy and need no reader of
// their own.
var downstreamTable = setting.Table[Downstream]{
	setting.Whole("concurrency", "", "workers in this process",
		func(d *Downstream) *int { return &d.Concurrency }, 1, 10_000, 10), // 0 is left to workers.Config, which knows the default
}

// durabilityTable has the ranges of shaper.ClientConfig, whose Validate knows them for programs.
var durabilityTable = setting.Table[shaper.ClientConfig]{
	setting.WholeOrZero("wait", "", "replicas that must have a job, too, before it counts as accepted",
		func(o *shaper.ClientConfig) *int { return &o.Replicas }, 100, " replicas, or 0 for none"),
	setting.Duration("timeout", "", "how long they may take",
		func(o *shaper.ClientConfig) *time.Duration { return &o.ReplicaTimeout }, time.Nanosecond, time.Millisecond, time.Minute,
		shaper.DefaultReplicaTimeout),
}

func (d *decoder) downstream(name string, n node) Downstream {
	v := Downstream{Name: name}
	d.fields(n, append(append(d.settings(setting.Of(&v.Policy)), d.settings(downstreamTable.Of(&v))...),
		field{"target", func(n node) { v.Target = d.target(n) }},
		field{"defaults", func(n node) { v.Policy.Defaults = d.policy(n) }},
		field{"tenants", func(n node) {
			v.Tenants = make(map[string]shaper.Policy)
			d.named(n, "tenant", func(name string, n node) { v.Tenants[name] = d.policy(n) })
		}},
		field{"admit", func(n node) { d.admit(n, &v.Policy) }},
		field{"durability", func(n node) { d.fields(n, d.settings(durabilityTable.Of(&v.Client))...) }},
	)...)
	return v
}

func (d *decoder) policy(n node) (p shaper.Policy) {
	d.mapping(n, func(key node, name string, value node) { // a file may have a hundred thousand of them
		if v, ok := setting.Find(&p, name); ok {
			d.set(v, value)
		} else {
			d.unknown(key, setting.Names(&p))
		}
	})
	return p
}

// redisURL checks enough of the URL to find the usual slips; package redisurl, which connects,
// checks the rest. The value may hold a password and is never quoted.
func (d *decoder) redisURL(n node) string {
	text, _ := scalar(n.Node)
	scheme, rest, _ := strings.Cut(text, "://")
	if !(strings.HasPrefix(scheme, "redis") || scheme == "unix") || rest == "" {
		d.fail(n, "want a URL such as redis://HOST:6379/0")
		return ""
	}
	return text
}

// address reads where to listen: HOST:PORT, unix:/PATH or none.
func (d *decoder) address(n node) string {
	text, _ := scalar(n.Node)
	if path, unix := strings.CutPrefix(text, "unix:"); text == "none" || unix && path != "" {
		return text
	}
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		d.wrong(n, "HOST:PORT, such as 127.0.0.1:8080, unix:/PATH or none")
		return ""
	}
	return text
}

// path reads the name of a file or folder.
func (d *decoder) path(n node) string {
	text, _ := scalar(n.Node)
	if text == "" {
		d.wrong(n, "the path of a folder")
	}
	return text
}
