//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package embedded

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the exclusive lock of the file or returns errLocked. The lock
// belongs to this opening of the file; children do not inherit it, since Go marks
// files close-on-exec.
func tryLock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// ownedByUs reports whether the file belongs to the user of this process.
func ownedByUs(info os.FileInfo) bool {
	uid, ok := owner(info)
	return ok && uid == os.Geteuid()
}

// ours reports whether the user of this process may trust a file by its owner.
func ours(info os.FileInfo) bool {
	uid, ok := owner(info)
	return ok && trusts(os.Geteuid(), uid)
}

func owner(info os.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// links is how many names a file has.
func links(info os.FileInfo) uint64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return uint64(stat.Nlink)
}

// noFollow opens a link itself, which fails, and does not wait for the other end of a pipe.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// isLink tells whether a file was not opened since it is a link; BSDs have errors of their own for
// that.
func isLink(err error) bool { return errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK) }
