package app

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/internal/api"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/config"
)

// Config describes a daemon.
type Config struct {
	Redis       string              // URL; empty = an embedded store of the daemon's own
	Accept      bool                // run even on a Redis that is unfit to keep jobs
	DataDir     string              // of the embedded store; empty = the default one
	Listen      string              // HOST:PORT or unix:/PATH; empty = no HTTP
	MayListen   bool                // run without HTTP if that address is taken
	Tokens      []string            // who may use the API; none = everybody on this machine
	Limits      api.LimitHeaders    // which headers tell producers about the admission rules
	Roles       Roles               // the zero Roles do nothing
	Downstreams []config.Downstream // at least one
	Grace       time.Duration
	Version     string
	Log         *slog.Logger
	LogDropped  func() uint64 // how many lines Log has lost; nil = it loses none
	Started     func(Running) // called once everything runs; may be nil
}

// Running is what a daemon says about itself once it runs.
type Running struct {
	Redis   string // URL of its store; may hold a password
	Address string // where it listens, HOST:PORT or unix:/PATH; empty = nowhere
}

// Roles are the parts of the work that a process does. Any number of processes may have a role.
type Roles struct {
	Scheduler bool // releases the jobs of each bucket when their time comes
	Worker    bool // runs them
	API       bool // takes jobs over HTTP
}

// ParseRoles reads a list such as "scheduler,worker,api".
func ParseRoles(list string) (Roles, error) {
	var r Roles
	for word := range strings.SplitSeq(list, ",") {
		switch strings.TrimSpace(word) {
		case "scheduler":
			r.Scheduler = true
		case "worker":
			r.Worker = true
		case "api":
			r.API = true
		default:
			return Roles{}, cliutil.Usagef("--roles %q: want some of scheduler, worker and api, with commas", list)
		}
	}
	return r, nil
}

// String is what ParseRoles reads.
func (r Roles) String() string {
	var words []string
	for _, role := range []struct {
		on   bool
		name string
	}{{r.Scheduler, "scheduler"}, {r.Worker, "worker"}, {r.API, "api"}} {
		if role.on {
			words = append(words, role.name)
		}
	}
	return strings.Join(words, ",")
}

// names lists the downstreams in a fixed order.
func (c Config) names() []string {
	names := make([]string, len(c.Downstreams))
	for i, d := range c.Downstreams {
		names[i] = d.Name
	}
	slices.Sort(names)
	return names
}
