package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/embedded/redisproc"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

var quiet = slog.New(slog.DiscardHandler)

// start starts a store that is stopped with the test.
func start(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Start(t.Context(), dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return s
}

func open(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	client, err := redisurl.Open(url, redisurl.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// hideRedis leaves PATH without a redis-server.
func hideRedis(t *testing.T) { t.Setenv("PATH", t.TempDir()) }

// eventually asks until condition holds; only a broken system reaches its bound.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, testenv.Patience)
		}
	}
}

func TestDataSurvivesStopAndStart(t *testing.T) {
	testenv.Need(t, "redis")
	ctx, dir := t.Context(), filepath.Join(t.TempDir(), "new", "data")
	s := start(t, dir)
	if s.Kind() != Server || !s.Durable() || !strings.Contains(s.Describe(), dir) {
		t.Errorf("kind %q, durable %v, %q; want a durable redis-server in %s", s.Kind(), s.Durable(), s.Describe(), dir)
	}
	for path, want := range map[string]os.FileMode{"": 0o700, "redis.sock": 0o700, "store.json": 0o600, "lock": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: mode %v, %v; want %v", path, info.Mode().Perm(), err, want)
		}
	}
	if err := open(t, s.URL()).Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if s.Err() != nil {
		t.Errorf("Err after a clean Stop = %v", s.Err())
	}
	if got, err := open(t, start(t, dir).URL()).Get(ctx, "k").Result(); got != "v" {
		t.Errorf("after stop and start: %q, %v; want v", got, err)
	}
}

func TestTheSettingsAreFitForJobs(t *testing.T) {
	testenv.Need(t, "redis")
	s := start(t, t.TempDir())
	for _, p := range redisurl.Check(t.Context(), open(t, s.URL())) {
		if p.Severity > redisurl.Note {
			t.Errorf("our own store is unfit: %v", p)
		}
	}
}

func TestDataSurvivesAKilledChild(t *testing.T) {
	testenv.Need(t, "redis")
	ctx := t.Context()
	s := start(t, t.TempDir())
	client := open(t, s.URL())
	for round := range 3 {
		if err := client.Set(ctx, strconv.Itoa(round), "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		old := s.backend.(*server).pid.Load()
		if err := syscall.Kill(int(old), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another child", func() bool { return s.backend.(*server).pid.Load() != old })
		if n, err := client.DBSize(ctx).Result(); int(n) != round+1 {
			t.Errorf("%d keys after the child was killed, %v; want %d", n, err, round+1)
		}
	}
}

func TestGivesUpOnAChildThatKeepsDying(t *testing.T) {
	real := testenv.Need(t, "redis")
	// The first start works; all later ones find the marker and fail.
	bin, marker := t.TempDir(), filepath.Join(t.TempDir(), "marker")
	script := fmt.Sprintf("#!/bin/sh\nif [ -e %[1]s ]; then echo the disk is gone; exit 1; fi\n: > %[1]s\nexec %[2]s \"$@\"\n", marker, real)
	if err := os.WriteFile(filepath.Join(bin, "redis-server"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	s := start(t, t.TempDir())
	if err := syscall.Kill(int(s.backend.(*server).pid.Load()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Errorf("Err = %v, want the last words of the child", err)
	}
}

func TestStopWhileTheChildIsAway(t *testing.T) {
	testenv.Need(t, "redis")
	s := start(t, t.TempDir())
	if err := syscall.Kill(int(s.backend.(*server).pid.Load()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 { // every call waits and returns the same
		wg.Go(func() {
			if err := s.Stop(); err != nil {
				t.Errorf("Stop: %v", err)
			}
		})
	}
	wg.Wait()
}

func TestOneOwner(t *testing.T) {
	for _, kind := range []Kind{Server, Memory} {
		t.Run(string(kind), func(t *testing.T) {
			if kind == Server {
				testenv.Need(t, "redis")
			} else {
				hideRedis(t)
			}
			dir := t.TempDir()
			first := start(t, dir)
			second, err := Start(t.Context(), dir, quiet)
			if err == nil {
				second.Stop()
				t.Fatal("a second store started in the same directory")
			}
			var inUse *InUseError
			if !errors.As(err, &inUse) || inUse.PID != os.Getpid() || inUse.Dir != dir {
				t.Errorf("error %#v, want an InUseError with our pid %d and %s", err, os.Getpid(), dir)
			}
			for _, want := range []string{strconv.Itoa(os.Getpid()), "stop", "--data-dir", "--redis"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			// The first one is none the worse for it.
			if url, err := Find(dir); url != first.URL() {
				t.Errorf("Find = %q, %v; want %q", url, err, first.URL())
			}
		})
	}
}

func TestMemory(t *testing.T) {
	hideRedis(t)
	ctx, dir := t.Context(), t.TempDir()
	s := start(t, dir)
	if s.Kind() != Memory || s.Durable() || !strings.Contains(s.Describe(), "END with this process") {
		t.Errorf("kind %q, durable %v, %q; want memory and a warning", s.Kind(), s.Durable(), s.Describe())
	}
	client := open(t, s.URL())
	if err := client.Set(ctx, "k", "v", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key's end", func() bool { return client.Exists(ctx, "k").Val() == 0 })

	if err := open(t, strings.Replace(s.URL(), "redis://:", "redis://:not", 1)).Ping(ctx).Err(); err == nil {
		t.Error("a client with another password was let in")
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	<-s.Done()
}

// An empty imitation must not hide jobs that a redis-server has kept.
func TestMemoryIsRefusedWhereThereIsData(t *testing.T) {
	testenv.Need(t, "redis")
	dir := t.TempDir()
	if err := start(t, dir).Stop(); err != nil {
		t.Fatal(err)
	}
	hideRedis(t)
	if _, err := Start(t.Context(), dir, quiet); err == nil || !strings.Contains(err.Error(), "install redis-server") {
		t.Errorf("error %v, want one that says to install redis-server", err)
	}
}

// Where the system does not kill a child with its parent, the next daemon does.
func TestAnOrphanIsEndedFirst(t *testing.T) {
	path := testenv.Need(t, "redis")
	dir := t.TempDir()
	lost := &server{path: path, dir: dir, socket: filepath.Join(dir, "redis.sock"), log: quiet}
	orphan, err := redisproc.Start(path, lost.args(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(orphan.Kill)
	if err := orphan.Ready(t.Context(), "unix", lost.socket, ""); err != nil {
		t.Fatal(err)
	}
	if err := open(t, lost.url()).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir)
	<-orphan.Done()
	if got, err := open(t, s.URL()).Get(t.Context(), "k").Result(); got != "v" {
		t.Errorf("the orphan's data: %q, %v; want v", got, err)
	}
}

func TestStartIsBoundedByItsContext(t *testing.T) {
	testenv.Need(t, "redis")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := Start(ctx, dir, quiet); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with an ended context: %v, want context.Canceled", err)
	}
	start(t, dir) // and the lock is free again
}

func TestLineLog(t *testing.T) {
	var out bytes.Buffer
	l := &lineLog{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, piece := range []string{"one\ntw", "o\n\n", strings.Repeat("x", maxLine+1)} {
		if n, err := l.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	for _, want := range []string{"line=one\n", "line=two\n", strings.Repeat("x", maxLine+1) + "\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %.20q in the log", want)
		}
	}
}
