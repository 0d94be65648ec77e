//go:build unix && !linux

package redisproc

import "syscall"

// childAttr gives the child its own process group. This system has no
// parent-death signal: a child outlives a parent that was killed.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
