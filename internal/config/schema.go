package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/jobshaper/jobshaper/shaper"
)

func (d *decoder) readFile(n node, f *File) {
	d.fields(n,
		field{"redis", func(n node) { f.Redis = d.redisURL(n) }},
		field{"listen", func(n node) { f.Listen = d.address(n) }},
		field{"data_dir", func(n node) { f.DataDir = d.path(n) }},
		field{"downstreams", func(n node) {
			f.Downstreams = make(map[string]Downstream)
			d.named(n, "downstream", func(name string, n node) { f.Downstreams[name] = d.downstream(n) })
		}},
	)
	if len(f.Downstreams) == 0 && len(d.found) == 0 {
		n.path = "downstreams"
		d.fail(n, "missing: want at least one downstream")
	}
}

// maxConcurrency is how many workers one process may have for a downstream.
const maxConcurrency = 10_000

func (d *decoder) downstream(n node) Downstream {
	var v Downstream
	policy := section{d, func() error { return v.Policy.Validate() }}
	workers := section{d, func() error {
		if v.Concurrency < 0 || v.Concurrency > maxConcurrency {
			return &shaper.FieldError{Want: fmt.Sprintf("1 to %d", maxConcurrency)}
		}
		return nil
	}}
	d.fields(n,
		d.rate("rate", &v.Policy.Rate),
		policy.wholeOrZero("max_in_flight", &v.Policy.MaxInFlight),
		workers.whole("concurrency", &v.Concurrency),
		field{"target", func(n node) { v.Target = d.target(n) }},
		choice(policy, "unknown_tenants", &v.Policy.UnknownTenants),
		policy.duration("tolerance", &v.Policy.Tolerance),
		policy.duration("lead", &v.Policy.Lead),
		policy.duration("lease", &v.Policy.Lease),
		policy.whole("max_crashes", &v.Policy.MaxCrashes),
		policy.whole("departure_log", &v.Policy.DepartureLog),
		field{"defaults", func(n node) { v.Policy.Defaults = d.policy(n) }},
		field{"tenants", func(n node) {
			v.Tenants = make(map[string]shaper.Policy)
			d.named(n, "tenant", func(name string, n node) { v.Tenants[name] = d.policy(n) })
		}},
		field{"admit", func(n node) { policy.admit(n, &v.Policy.Admit) }},
		field{"durability", func(n node) { d.durability(n, &v.Client) }},
	)
	return v
}

func (d *decoder) durability(n node, o *shaper.ClientConfig) {
	s := section{d, func() error { return o.Validate() }}
	d.fields(n,
		s.wholeOrZero("wait", &o.Wait),
		s.duration("timeout", &o.WaitTimeout),
	)
}

func (d *decoder) policy(n node) shaper.Policy {
	var p shaper.Policy
	s := section{d, func() error { return p.Validate() }}
	d.fields(n,
		d.rate("rate", &p.Rate),
		s.whole("depth", &p.Depth),
		s.whole("weight", &p.Weight),
		choice(s, "on_full", &p.OnFull),
		s.whole("max_in_flight", &p.MaxInFlight),
		s.whole("max_attempts", &p.MaxAttempts),
		s.whole("max_throttles", &p.MaxThrottles),
		s.backoff("backoff", &p.Backoff),
		s.duration("timeout", &p.Timeout),
		s.maxWait("max_wait", &p.MaxWait),
		s.duration("retention", &p.Retention),
	)
	return p
}

// redisURL checks as much of the URL as finds the usual slips; package redisurl, which connects,
// knows the rest. The value may hold a password and is never quoted.
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
