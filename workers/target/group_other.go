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
func runGroup(context.Context, *exec.Cmd, time.Duration) (bool, error) {
	return false, errors.ErrUnsupported
}
