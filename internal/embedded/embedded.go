// Package embedded is the store for users who have no Redis yet: a redis-server
// child with a data directory where that program is on PATH, else an imitation
// inside the process.
//
// The package promises that
//
//   - one data directory has one owner: a second daemon is refused, with the pid of the first;
//   - what the redis-server child has acknowledged survives a crash of the child
//     and of the daemon (append-only file, synced every second);
//   - nothing outlives Stop: no child, no goroutine, no store file;
//   - other commands of the same user find a running store by its directory.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
)

// Kind is what a store runs on.
type Kind string

// The kinds of store.
const (
	Server Kind = "redis-server" // a child process, durable
	Memory Kind = "memory"       // inside this process, gone with it
)

// Store is a running embedded store. It belongs to the caller of Start, who must
// Stop it; its methods may be called from any goroutine.
type Store struct {
	dir     string
	kind    Kind
	backend backend
	lock    *dirLock

	stopOnce sync.Once
	stopErr  error // set within stopOnce
}

// backend is what does the work of a store.
type backend interface {
	url() string
	describe() string
	// done is closed when the backend has ended for good; err says why.
	done() <-chan struct{}
	err() error
	// stop ends the backend and waits. It is called once.
	stop() error
}

// Start starts the store of a data directory, which is created if need be, and
// returns when the store answers and has loaded what was there. ctx bounds the start
// only: the store must outlive the signal that ends the daemon, until the last
// job's end is written. log gets the server's own lines at debug level.
//
// If another process owns the directory, Start fails with an *InUseError.
func Start(ctx context.Context, dir string, log *slog.Logger) (_ *Store, err error) {
	if dir, err = prepareDir(dir, log); err != nil {
		return nil, err
	}
	s := &Store{dir: dir}
	if s.lock, err = acquire(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.release()
		}
	}()
	// A redis-server that exists and fails to start is an error, not a reason to
	// fall back: its directory may hold jobs.
	if path, lookErr := exec.LookPath("redis-server"); lookErr == nil {
		s.kind = Server
		s.backend, err = startServer(ctx, path, dir, log)
	} else if hasData(dir) {
		return nil, fmt.Errorf("data directory %s holds the jobs of a redis-server, but none is on PATH: "+
			"install redis-server, or choose another with --data-dir", dir)
	} else {
		s.kind = Memory
		s.backend, err = startMemory()
	}
	if err != nil {
		return nil, err
	}
	if err = writeStoreFile(dir, s.kind, s.backend.url()); err != nil {
		return nil, errors.Join(err, s.backend.stop())
	}
	return s, nil
}

// URL is where the store answers, as redisurl.Open takes it. It stays the same
// when the child is restarted. It may hold a password: see redisurl.Redact.
func (s *Store) URL() string { return s.backend.url() }

// Kind says what the store runs on.
func (s *Store) Kind() Kind { return s.kind }

// Durable reports whether jobs survive the end of this process.
func (s *Store) Durable() bool { return s.kind == Server }

// Describe is one line for the user: which store, where, and how durable.
func (s *Store) Describe() string { return s.backend.describe() }

// Done is closed when the store has ended: by Stop, or because its child died
// again and again. Err then says why.
func (s *Store) Done() <-chan struct{} { return s.backend.done() }

// Err is nil while the store runs and after a clean Stop.
func (s *Store) Err() error {
	select {
	case <-s.backend.done():
		return s.backend.err()
	default:
		return nil
	}
}

// Stop ends the store, waits for it, and releases the directory. Every call
// waits and returns the same.
func (s *Store) Stop() error {
	s.stopOnce.Do(func() {
		// The file is removed first, so that nobody finds a store that is ending; the
		// lock is released last, when the child no longer writes.
		s.stopErr = errors.Join(removeStoreFile(s.dir), s.backend.stop())
		s.lock.release()
	})
	return s.stopErr
}
