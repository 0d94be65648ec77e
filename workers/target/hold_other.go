//go:build unix && !linux

package target

import (
	"errors"
	"os/exec"
)

// holdable returns false: elsewhere a stopped process cannot be told from one that has not begun.
func holdable(string) bool { return false }

func startHeld(*exec.Cmd) error { return errors.ErrUnsupported }
func letGo(*exec.Cmd) error     { return errors.ErrUnsupported }
func forbids(error) bool        { return true }
