// Package store opens the Redis that a program works with: the one that the user names, else the
// embedded one of a data directory. The store that Open returns answers, or else Open says why not
// and what to do about it (with Config.Lazy, the user of the store finds that out).
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/embedded"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/shaper"
)

// Config says where the store is. The zero value is the embedded store of a running daemon, in the
// default directory.
type Config struct {
	URL      string       // as redisurl.Open takes it; empty = the embedded store
	DataDir  string       // of the embedded store; default embedded.DefaultDir()
	Embed    bool         // start the embedded store (a daemon) rather than look for a running one
	Check    bool         // refuse a Redis that will lose jobs, and warn loudly about one that may
	Accept   bool         // with Check: only warn, even about one that will lose jobs
	Lazy     bool         // do not ask whether the store answers: the user of Client will see
	Name     string       // shown by CLIENT LIST
	PoolSize int          // bounds the connections; 0 = the default
	Log      *slog.Logger // default slog.Default()
}

// Store is a Redis that answers. Close it once nothing uses Client any more.
type Store struct {
	Client redis.UniversalClient
	URL    string // may hold a password
	// Describe is one line for the user: which store, where, and how durable. It holds no password.
	Describe string
	Fleeting bool // its jobs end with this process

	embedded *embedded.Store // nil unless this process started it
	log      *slog.Logger
}

// answerWithin is how long a Redis may take to answer.
const answerWithin = 5 * time.Second

// examineWithin is how long the examination of a Redis may take: some ten round trips to each node.
const examineWithin = 10 * time.Second

// Open connects to the store, and starts it where Config.Embed says so. Its error wraps
// shaper.ErrStore where the store does not answer or is unfit, and shaper.ErrInvalid where the URL
// cannot be used.
func Open(ctx context.Context, o Config) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Store{Describe: "redis at " + redisurl.Redact(o.URL), log: o.Log}
	url := o.URL
	if url == "" {
		var err error
		if url, err = s.embed(ctx, o); err != nil {
			return nil, err
		}
	}
	client, err := redisurl.Open(url, redisurl.Config{Name: o.Name, PoolSize: o.PoolSize})
	if err != nil {
		return nil, errors.Join(kind{err, shaper.ErrInvalid}, s.stop())
	}
	s.Client, s.URL = client, url
	if o.Lazy {
		return s, nil
	}
	ping, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := client.Ping(ping).Err(); err != nil {
		text, fix := redisurl.Explain(ctx, client, err)
		if fix != "" {
			fix = ": " + fix
		}
		err = fmt.Errorf("%s cannot be used: %s%s", s.Describe, text, fix)
		return nil, errors.Join(kind{err, shaper.ErrStore}, s.Close())
	}
	if o.Check && o.URL != "" {
		if err := s.examine(ctx, o); err != nil {
			return nil, errors.Join(kind{err, shaper.ErrStore}, s.Close())
		}
	}
	return s, nil
}

// embed starts or finds the embedded store and returns its URL.
func (s *Store) embed(ctx context.Context, o Config) (string, error) {
	if o.DataDir == "" {
		o.DataDir = embedded.DefaultDir()
	}
	if !o.Embed {
		s.Describe = "the embedded store of " + o.DataDir
		url, err := embedded.Find(o.DataDir)
		if err != nil {
			return "", kind{err, shaper.ErrStore}
		}
		return url, nil
	}
	e, err := embedded.Start(ctx, o.DataDir, o.Log)
	if err != nil {
		return "", kind{err, shaper.ErrStore}
	}
	s.embedded, s.Describe, s.Fleeting = e, e.Describe(), !e.Durable()
	return e.URL(), nil
}

// examine logs each way in which a Redis is unfit to keep jobs, and returns an error if jobs will
// be lost or stuck: better no daemon than one that says "accepted" there. Accept is for operators
// who mend such a Redis while it has jobs, for which a daemon must run.
func (s *Store) examine(ctx context.Context, o Config) error {
	ctx, cancel := context.WithTimeout(ctx, examineWithin)
	defer cancel()
	var unfit []error
	for _, p := range redisurl.Check(ctx, s.Client) {
		level, text := slog.LevelDebug, p.Text
		switch {
		case p.Severity == redisurl.Refuse && !o.Accept:
			unfit = append(unfit, fmt.Errorf("%s is unfit to keep jobs: %s (%s)", s.Describe, p.Text, p.Fix))
			continue
		case p.Severity == redisurl.Refuse:
			level, text = slog.LevelError, "JOBS WILL BE LOST OR STUCK: "+p.Text
		case p.Severity == redisurl.Warn:
			level, text = slog.LevelWarn, "JOBS MAY BE LOST: "+p.Text
		}
		o.Log.Log(ctx, level, text, "redis", p.Node, "fix", p.Fix)
	}
	if len(unfit) > 0 {
		unfit = append(unfit, errors.New("`shaper doctor` says more; --accept-unfit-redis starts all the same"))
	}
	return errors.Join(unfit...)
}

// Done is closed when an embedded store of this process has ended on its own; for other stores it
// is nil.
func (s *Store) Done() <-chan struct{} {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.Done()
}

// Err says why Done was closed.
func (s *Store) Err() error {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.Err()
}

// endWithin is how long an embedded store may take to be told that it is about to end.
const endWithin = 2 * time.Second

// Close closes the client, and then ends what Open started.
func (s *Store) Close() error {
	if s.embedded != nil && s.embedded.Durable() {
		s.endInOrder()
	}
	return errors.Join(s.Client.Close(), s.stop())
}

func (s *Store) endInOrder() {
	select {
	case <-s.Done():
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), endWithin)
	defer cancel()
	if err := queue.EndInOrder(ctx, s.Client); err != nil {
		s.log.Warn("after the next start tenants may wait an interval: the embedded store could not be told of its end",
			"error", err)
	}
}

func (s *Store) stop() error {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.Stop()
}

// kind is an error with one of package shaper's sentinels, which its text does not repeat.
type kind struct {
	error
	sentinel error
}

func (k kind) Unwrap() []error { return []error{k.error, k.sentinel} }
