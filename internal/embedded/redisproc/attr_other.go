//go:build !unix

package redisproc

import "syscall"

func childAttr() *syscall.SysProcAttr { return nil }
