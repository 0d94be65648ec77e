package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
)

// DirVar is the environment variable that names the data directory.
const DirVar = "SHAPER_DATA_DIR"

// DefaultDir is the data directory where the user names none: $SHAPER_DATA_DIR,
// $XDG_DATA_HOME/jobshaper, or ~/.local/share/jobshaper, with the home that the
// system knows of where the environment names none. It is empty for a user
// without a home: among the temporary files anybody may have made it before.
func DefaultDir() string {
	if dir := os.Getenv(DirVar); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) { // its specification says to ignore any other
		return filepath.Join(dir, "jobshaper")
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		home = ""
		if u, err := user.Current(); err == nil {
			home = u.HomeDir
		}
	}
	if !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Join(home, ".local", "share", "jobshaper")
}

var errNoDir = errors.New("data directory: you have no home for it: name one with --data-dir or " + DirVar)

// prepareDir makes the directory, for its owner only, and returns its absolute
// path. An existing directory keeps its permissions, but see checkDir.
func prepareDir(dir string, log *slog.Logger) (string, error) {
	if dir == "" {
		return "", errNoDir
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("data directory: %w: choose another with --data-dir", err)
	}
	if err := checkDir(dir); err != nil {
		return "", err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		log.Warn("other users can read the jobs in the data directory: chmod 700", "dir", dir, "mode", fmt.Sprintf("%#o", perm))
	}
	return dir, nil
}

// hasData reports whether a redis-server has kept data in the directory.
func hasData(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "appendonlydir"))
	return err == nil
}

// maxSocketPath is the longest path of a unix socket that every system takes; the
// field in the kernel has 104 to 108 bytes.
const maxSocketPath = 100

// socketPath returns where the server listens: in the data directory, or, where
// that path is too long, in a private directory among the temporary ones, named
// after the data directory, so that each start finds the same one.
func socketPath(dir string) (string, error) {
	path := filepath.Join(dir, "redis.sock")
	if len(path) <= maxSocketPath {
		return path, nil
	}
	sum := sha256.Sum256([]byte(dir))
	runtime := filepath.Join(os.TempDir(), fmt.Sprintf("jobshaper-%d-%s", os.Getuid(), hex.EncodeToString(sum[:6])))
	path = filepath.Join(runtime, "redis.sock")
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("socket %s: longer than %d bytes: want a shorter --data-dir or TMPDIR", path, maxSocketPath)
	}
	if err := os.Mkdir(runtime, 0o700); err != nil && !os.IsExist(err) {
		return "", fmt.Errorf("directory for the socket: %w", err)
	}
	// Anybody may have made it before us, to eavesdrop: it must be a directory and not
	// a link to one, be ours, and be closed to others.
	info, err := os.Lstat(runtime)
	if err != nil {
		return "", fmt.Errorf("directory for the socket: %w", err)
	}
	if !info.IsDir() || info.Mode().Perm() != 0o700 || !ownedByUs(info) {
		return "", fmt.Errorf("directory for the socket %s: %v, want a directory of your own with mode 700: remove it", runtime, info.Mode())
	}
	return path, nil
}
