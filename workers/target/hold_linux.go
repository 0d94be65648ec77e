package target

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// A command is held before its first instruction by being traced: the kernel stops a traced process
// once its exec is done. See docs/adr/014-the-slot-is-where-the-first-byte-goes.md.

// holdable reports whether a traced command runs as one that is not. One that gains rights by its
// exec does not gain them.
func holdable(path string) bool {
	st, err := os.Stat(path)
	if err != nil || st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return false
	}
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err != nil || n == 0
}

// startHeld starts cmd and holds it before its first instruction. The calling thread is its tracer:
// it must be locked, stay, and be the one that lets cmd go.
func startHeld(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	err := awaitStop(pid)
	if err == nil {
		// If we die now it must not go on by itself: Pdeathsig would come a moment after that.
		err = unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL)
	}
	if err != nil {
		killHeld(cmd)
		return fmt.Errorf("hold: %w: %w", err, errNotHeld)
	}
	return nil
}

// awaitStop waits until the child pid has stopped. Its end is an error, and is left to be waited
// for.
func awaitStop(pid int) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case info.Code == cldTrapped:
			return nil
		default:
			return errors.New("command ended before it was let go")
		}
	}
}

const cldTrapped = 4 // CLD_TRAPPED: a traced child has stopped

// letGo lets a held command run.
func letGo(cmd *exec.Cmd) error { return syscall.PtraceDetach(cmd.Process.Pid) }

// forbids reports whether an error of startHeld says that this system does not let commands be held.
func forbids(err error) bool {
	return errors.Is(err, errNotHeld) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS)
}
