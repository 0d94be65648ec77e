package api

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestListenUnix(t *testing.T) {
	ctx := t.Context()
	dir, err := os.MkdirTemp("", "s") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "shaper.sock")
	address := "unix:" + path
	if local, err := Loopback(ctx, address, nil); !local || err != nil {
		t.Errorf("Loopback: %v, %v", local, err)
	}
	l, err := Listen(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	if got := Address(l); got != address {
		t.Errorf("it listens at %s, want %s", got, address)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v; want a socket for its owner alone", info.Mode(), err)
	}
	if _, err := Listen(ctx, address); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("where somebody listens: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("after somebody tried to take its place: %v", err)
	} else {
		c.Close()
	}
	l.Close()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("left behind: %v, %v", files, err)
	}

	// A daemon that was killed has left its socket.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	l, err = Listen(ctx, address)
	if err != nil {
		t.Fatalf("where nobody listens any more: %v", err)
	}
	// A listener that lost its place leaves the other's socket alone.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := Listen(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other's socket: %v", err)
	}
	other.Close()

	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(ctx, address); !errors.Is(err, fs.ErrExist) {
		t.Errorf("where a file is: %v", err)
	}
	if b, err := os.ReadFile(path); string(b) != "mine" {
		t.Errorf("the file: %q, %v", b, err)
	}
}
