package jobshaper

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/store"
)

// Embedded is a Redis that this process has started and owns, to try things with: a redis-server
// where one is on PATH, else an imitation inside this process. It ends with the process, or with
// Close.
type Embedded struct {
	store *store.Store
	temp  string // a directory that Close removes; "" = none
}

// OpenEmbedded starts an Embedded that keeps its data in dir, and returns once it answers. A dir
// belongs to one process at a time; `shaper --data-dir DIR` and `enqueue --data-dir DIR` find it
// there. If dir is empty, nothing is left after Close. ctx bounds the start only.
func OpenEmbedded(ctx context.Context, dir string) (*Embedded, error) {
	e := &Embedded{}
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "jobshaper-"); err != nil {
			return nil, fmt.Errorf("directory of the embedded store: %w", err)
		}
		e.temp = dir
	}
	var err error
	if e.store, err = store.Open(ctx, store.Config{DataDir: dir, Embed: true, Name: "jobshaper"}); err != nil {
		return nil, errors.Join(err, e.removeTemp())
	}
	return e, nil
}

// Client is connected to the Redis, fit for Open, and closed by Close.
func (e *Embedded) Client() redis.UniversalClient { return e.store.Client }

// Durable reports whether jobs outlive the process: they do not in the imitation, nor without a
// dir.
func (e *Embedded) Durable() bool { return !e.store.Fleeting && e.temp == "" }

// String says in one line what the store is, where, and how durable.
func (e *Embedded) String() string {
	if e.temp != "" && !e.store.Fleeting {
		return "a redis-server of its own, for this run only"
	}
	return e.store.Describe
}

// Close closes the client and ends the server. Stop each Queue on it first.
func (e *Embedded) Close() error { return errors.Join(e.store.Close(), e.removeTemp()) }

func (e *Embedded) removeTemp() error {
	if e.temp == "" {
		return nil
	}
	return os.RemoveAll(e.temp)
}
