package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// unixListener is a listener at a path of its own.
type unixListener struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// listenUnix listens at a path that only this user may connect to. A socket that is already there
// is replaced if nobody listens at it any more; if two daemons replace one at the same moment, the
// later one has the path.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := vacant(ctx, path); err != nil {
		return nil, err
	}
	// The socket is created in a folder that is closed to others: once it is at its path, it never
	// has wider rights.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	l := &unixListener{UnixListener: listener.(*net.UnixListener), path: path}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(made, 0o600)
	if err == nil {
		l.file, err = os.Lstat(made)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		_ = listener.Close() // nobody has used it
		return nil, err
	}
	return l, nil
}

// vacant returns nil if nothing is at path, or only a socket at which nobody listens.
func vacant(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("a file that is not a socket is there: %w", fs.ErrExist)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close() // it was only to see
		return syscall.EADDRINUSE
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil
	}
	return err
}

// Addr is the path.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: l.path} }

// Close removes the socket before it closes it: nobody takes its place while it still answers.
func (l *unixListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.file) {
		_ = os.Remove(l.path) // if that fails, the next daemon finds that nobody listens
	}
	return l.UnixListener.Close()
}
