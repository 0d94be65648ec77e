package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/internal/embedded/redisproc"
)

const (
	// stopGrace is how long a child may take to write its file and end. It takes
	// some 100 ms; the rest is for a disk that is busy.
	stopGrace = 10 * time.Second
	// maxRestarts is how often a child that dies young is started again.
	maxRestarts = 5
	// matureAfter is the age at which a child's predecessors' deaths are forgotten.
	matureAfter = time.Minute
	// firstPause is the wait before the second restart in a row; each further wait is
	// twice as long. The first restart happens at once.
	firstPause = 100 * time.Millisecond
)

// server is the backend with a redis-server child. One goroutine, supervise, owns
// the child from start to end.
type server struct {
	path   string
	dir    string
	socket string
	log    *slog.Logger

	cancel context.CancelFunc // asks supervise to end
	ended  chan struct{}      // closed by supervise when it has ended
	failed error              // why it ended; set before ended is closed
	pid    atomic.Int64       // of the present child
}

func startServer(ctx context.Context, path, dir string, log *slog.Logger) (*server, error) {
	socket, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	if err := endOrphan(ctx, socket); err != nil {
		return nil, err
	}
	s := &server{path: path, dir: dir, socket: socket, log: log, ended: make(chan struct{})}
	proc, err := s.spawn(ctx)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.supervise(running, proc)
	return s, nil
}

func (s *server) args() []string {
	return []string{
		"--port", "0", // no network: other users of the machine cannot reach it
		"--unixsocket", s.socket, "--unixsocketperm", "700",
		"--dir", s.dir,
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
		"--maxmemory-policy", "noeviction",
	}
}

// spawn starts a child and waits until it answers and has loaded its data.
func (s *server) spawn(ctx context.Context) (*redisproc.Process, error) {
	proc, err := redisproc.Start(s.path, s.args(), &lineLog{log: s.log})
	if err != nil {
		return nil, err
	}
	if err := proc.Ready(ctx, "unix", s.socket, ""); err != nil {
		// By SIGTERM: while the child loads it has nothing to lose, and after that it
		// may have something to write.
		return nil, errors.Join(err, proc.Stop(stopGrace))
	}
	s.pid.Store(int64(proc.PID()))
	return proc, nil
}

// supervise keeps a child running until ctx ends, then stops it. It gives up when
// children keep dying young.
func (s *server) supervise(ctx context.Context, proc *redisproc.Process) {
	defer close(s.ended)
	deaths := 0
	for {
		born := time.Now()
		select {
		case <-ctx.Done():
			s.failed = proc.Stop(stopGrace)
			return
		case <-proc.Done():
		}
		if time.Since(born) > matureAfter {
			deaths = 0
		}
		s.log.Error("the embedded redis-server died and is being started again", "pid", proc.PID(), "error", proc.Err())
		proc, s.failed = s.respawn(ctx, &deaths)
		if proc == nil {
			return
		}
	}
}

// respawn starts a child after one has died, counting in deaths those that died
// one after the other. It returns nil when ctx ends first, or, with the last
// error, when there were too many.
func (s *server) respawn(ctx context.Context, deaths *int) (*redisproc.Process, error) {
	err := errors.New("it starts, then dies") // unless spawn gives a better reason
	for {
		*deaths++
		if *deaths > maxRestarts {
			err = fmt.Errorf("the embedded redis-server died %d times in a row, see %s: %w", *deaths, s.dir, err)
			s.log.Error("the embedded store has ended", "error", err)
			return nil, err
		}
		if *deaths > 1 && !again.Sleep(ctx, firstPause<<(*deaths-2)) {
			return nil, nil
		}
		proc, spawnErr := s.spawn(ctx)
		switch {
		case spawnErr == nil:
			return proc, nil
		case ctx.Err() != nil:
			return nil, nil
		}
		err = spawnErr
		s.log.Error("the embedded redis-server could not be started again", "error", err)
	}
}

func (s *server) url() string {
	return (&url.URL{Scheme: "unix", Path: filepath.ToSlash(s.socket)}).String()
}

func (s *server) describe() string {
	return fmt.Sprintf("embedded redis-server (pid %d), data in %s: jobs survive a crash; "+
		"a power failure may cost the last second", s.pid.Load(), s.dir)
}

func (s *server) done() <-chan struct{} { return s.ended }

func (s *server) err() error { return s.failed }

func (s *server) stop() error {
	select {
	case <-s.ended: // it had given up on its own, and Err has said why
		return nil
	default:
	}
	s.cancel()
	<-s.ended
	return s.failed
}
