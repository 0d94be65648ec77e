//go:build unix && !linux

package target

import "syscall"

// groupAttr makes a command lead its own group.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitExit returns false: there is no portable way to see an exit without reaping the child. So
// here the rest of a group is killed only after pipeGrace, if it keeps the pipes.
func awaitExit(int) bool { return false }
