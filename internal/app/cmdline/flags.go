// Package cmdline is what the programs share besides package cliutil: the flags that name the store
// and the downstream, values of the product's own kinds, signals, log lines, and the exit code for
// each error.
package cmdline

import (
	"errors"
	"log/slog"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/embedded"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/store"
	"github.com/jobshaper/jobshaper/shaper"
)

// StoreFlags name the store: --redis and --data-dir. They take environment variables.
func StoreFlags() []cli.Flag {
	return cliutil.FromEnv(
		&cli.StringFlag{Name: "redis", Usage: "`URL` of the Redis that keeps the jobs: redis://, rediss://, unix://, redis-sentinel:// or redis-cluster:// (default: the embedded store)"},
		&cli.StringFlag{Name: "data-dir", Usage: "`DIR` where the embedded store keeps its data", Value: embedded.DefaultDir(), DefaultText: "~/.local/share/jobshaper"},
	)
}

// JSONFlag is --json. It takes an environment variable.
func JSONFlag() cli.Flag {
	return cliutil.FromEnv(&cli.BoolFlag{Name: "json", Usage: "print JSON, one object per line"})[0]
}

// DownstreamFlag is --downstream. It takes no variable: SHAPER_DOWNSTREAM describes to a command
// the job that it runs for.
func DownstreamFlag() cli.Flag {
	return &cli.StringFlag{Name: "downstream", Usage: "`NAME` of the downstream", Value: shaper.DefaultName}
}

// Flags are StoreFlags, --downstream, --json and the command's own, which come first.
func Flags(own ...cli.Flag) []cli.Flag {
	return append(append(append(own, DownstreamFlag()), StoreFlags()...), JSONFlag())
}

// Open opens the store that the flags name, for a command that is soon over. The embedded one must
// be running.
func Open(c *cli.Context, name string) (*store.Store, error) {
	return open(c, store.Config{Name: name})
}

// OpenLazily is Open for a command that has its own answer to a Redis that is away: it does not ask
// whether the store answers.
func OpenLazily(c *cli.Context, name string) (*store.Store, error) {
	return open(c, store.Config{Name: name, Lazy: true})
}

func open(c *cli.Context, o store.Config) (*store.Store, error) {
	// The error says what the client would log about a store that is away.
	log := slog.New(NewConciseHandler(c.App.ErrWriter, slog.LevelError))
	redisurl.SetLogger(log)
	o.URL, o.DataDir, o.PoolSize, o.Log = c.String("redis"), c.String("data-dir"), 8, log
	s, err := store.Open(c.Context, o)
	if errors.Is(err, shaper.ErrInvalid) {
		err = cliutil.Usagef("--redis: %w", err)
	}
	return s, err
}
