package target

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupAttr makes a command lead its own group, and die with the worker, however the worker ends.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns true when the child pid has exited, and leaves it to be waited for.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
