//go:build !unix

package target

import (
	"context"
	"errors"
	"os/exec"
	"time"
)

const execSupported = false

// runGroup is never reached: without process groups a command's children could outlive its job.
func runGroup(context.Context, *exec.Cmd, time.Duration, func() error) (bool, error) {
	return false, errors.ErrUnsupported
}

func holdable(string) bool { return false }
func forbids(error) bool   { return true }
