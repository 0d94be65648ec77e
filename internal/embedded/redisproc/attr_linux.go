package redisproc

import "syscall"

// childAttr gives the child its own process group and lets the kernel kill it
// when its parent is gone, however the parent ended.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
