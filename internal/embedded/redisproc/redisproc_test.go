package redisproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// startServer starts a server on a socket of its own and waits until it is ready.
func startServer(t *testing.T, extra ...string) (p *Process, socket string) {
	t.Helper()
	path := testenv.Need(t, "redis")
	dir, err := os.MkdirTemp("", "redisproc") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	p, err = Start(path, append([]string{"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", ""}, extra...), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p, socket
}

// script starts a shell script in place of a server.
func script(t *testing.T, text string) *Process {
	t.Helper()
	p, err := Start("/bin/sh", []string{"-c", text}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestReadyThenStop(t *testing.T) {
	p, socket := startServer(t, "--requirepass", "sesame")
	if err := p.Ready(t.Context(), "unix", socket, "sesame"); err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil {
		t.Errorf("Err of a running server = %v", err)
	}
	if err := p.Stop(time.Minute); err != nil {
		t.Errorf("Stop = %v", err)
	}
	if err := p.Err(); err != nil {
		t.Errorf("Err after a clean end = %v", err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Signal to an ended server = %v, want os.ErrProcessDone", err)
	}
	p.Kill() // which is allowed
}

func TestReadyRefusesAForeignServer(t *testing.T) {
	foreign, socket := startServer(t)
	if err := foreign.Ready(t.Context(), "unix", socket, ""); err != nil {
		t.Fatal(err)
	}
	ours, _ := startServer(t)
	if err := ours.Ready(t.Context(), "unix", socket, ""); !errors.Is(err, ErrNotOurs) {
		t.Errorf("Ready at a foreign server = %v, want ErrNotOurs", err)
	}
}

func TestReadyReturnsWhenTheChildEnds(t *testing.T) {
	for _, text := range []string{"echo no memory; exit 3", "echo no memory"} {
		err := script(t, text).Ready(t.Context(), "unix", "/nonexistent", "")
		if err == nil || !strings.Contains(err.Error(), "no memory") {
			t.Errorf("%s: Ready = %v, want the last words", text, err)
		}
	}
}

func TestReadyObeysItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := script(t, "exec sleep 600").Ready(ctx, "unix", "/nonexistent", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ready = %v, want its context's end", err)
	}
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	p := script(t, "trap '' TERM; echo deaf; while :; do sleep 1; done")
	for !strings.Contains(p.log.suffix(), "deaf") { // it has set its trap
		time.Sleep(time.Millisecond)
	}
	if err := p.Stop(time.Millisecond); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("Stop = %v, want an error that tells of the kill", err)
	}
	<-p.Done()
}

func TestStartWithoutAProgram(t *testing.T) {
	if _, err := Start("/nonexistent", nil, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start = %v, want os.ErrNotExist", err)
	}
}

func TestTail(t *testing.T) {
	var all bytes.Buffer
	log := &tail{next: &all}
	if log.suffix() != "" {
		t.Errorf("suffix of nothing = %q", log.suffix())
	}
	for range 3 {
		if n, err := log.Write(bytes.Repeat([]byte("x"), tailSize)); n != tailSize || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	_, _ = log.Write([]byte("end\n"))
	if !strings.HasSuffix(log.suffix(), "xend") || len(log.last) != tailSize || all.Len() != 3*tailSize+4 {
		t.Errorf("kept %d bytes, passed %d on, suffix ends %q", len(log.last), all.Len(), log.suffix()[len(log.suffix())-8:])
	}
}

// A server that is writing its first append-only file refuses to end and forgets that it was asked;
// it ends all the same once that is written.
func TestStopWhileTheFirstFileIsWritten(t *testing.T) {
	t.Parallel()
	p, socket := startServer(t)
	if err := p.Ready(t.Context(), "unix", socket, ""); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx := t.Context()
	for i := range 200 {
		if err := rdb.Set(ctx, fmt.Sprint("k", i), "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, set := range [][2]string{{"rdb-key-save-delay", "10000"}, {"appendonly", "yes"}} { // 2 s to write them all
		if err := rdb.ConfigSet(ctx, set[0], set[1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Stop(time.Minute); err != nil {
		t.Error(err)
	}
}
