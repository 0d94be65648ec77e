package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// errLocked is what tryLock returns when another process holds the lock.
var errLocked = errors.New("locked")

// InUseError says that another process owns a data directory.
type InUseError struct {
	Dir string
	PID int // of the owner; 0 where not known
}

func (e *InUseError) Error() string {
	owner := "another process"
	if e.PID != 0 {
		owner = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("data directory %s is in use by %s: stop that process, choose another directory with --data-dir, "+
		"or share a Redis with --redis URL", e.Dir, owner)
}

// dirLock makes this process the owner of a data directory. The kernel frees it
// when the process ends, however it ends.
type dirLock struct{ file *os.File }

// acquire locks the directory and writes our pid into the lock file. The file
// stays when the lock is released: removing it would let two processes lock two
// different files of the same name.
func acquire(dir string) (*dirLock, error) {
	file, err := openOwn(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := tryLock(file); err != nil {
		defer file.Close()
		if errors.Is(err, errLocked) {
			return nil, &InUseError{Dir: dir, PID: readPID(file.Name())}
		}
		return nil, fmt.Errorf("data directory: lock %s: %w", file.Name(), err)
	}
	if err := errors.Join(file.Truncate(0), writePID(file)); err != nil {
		file.Close()
		return nil, fmt.Errorf("data directory: lock: %w", err)
	}
	return &dirLock{file}, nil
}

// release releases the directory.
func (l *dirLock) release() { _ = l.file.Close() }

func writePID(file *os.File) error {
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// readPID returns the pid in a lock file, or 0: its owner may not have written it yet.
func readPID(path string) int {
	text, err := readOwn(path)
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}
