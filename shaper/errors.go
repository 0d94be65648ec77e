package shaper

import (
	"errors"
	"fmt"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// Errors to branch on. A refusal is not among them: it is a value, see Result.
var (
	// ErrInvalid is what every *FieldError wraps: the caller's input cannot be used, and nothing
	// was changed.
	ErrInvalid = errors.New("invalid input")
	// ErrNotFound says that no such job, tenant or downstream is known.
	ErrNotFound = errors.New("not found")
	// ErrStore is what every failure of Redis itself wraps. Whether the call took effect is
	// unknown; every call of this package may be repeated.
	ErrStore = queue.ErrStore
	// ErrLeaseLost is why a handler's context ended (its cause) if its worker no longer owns the
	// job.
	ErrLeaseLost = errors.New("lease lost")
	// ErrCancelled is that cause if the job was cancelled.
	ErrCancelled = errors.New("job cancelled")
	// ErrStopping is that cause if the grace of a shutdown was over.
	ErrStopping = errors.New("worker stopping")
)

// UnreadableError says that what Redis keeps of a downstream cannot be read by this version.
type UnreadableError = queue.UnreadableError

// FieldError names an input that cannot be used: the field, its value, and what would be right.
// It wraps ErrInvalid.
type FieldError struct {
	Field, Value, Want string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s %q: want %s", e.Field, e.Value, e.Want)
}

func (e *FieldError) Unwrap() error { return ErrInvalid }

// PayloadTooLargeError says that a payload, with its job's headers, is over the limit. It wraps
// ErrInvalid.
type PayloadTooLargeError struct{ Size, Max int }

func (e *PayloadTooLargeError) Error() string {
	return fmt.Sprintf("payload and headers of %d bytes: want at most %d; pass a reference to the data instead", e.Size, e.Max)
}

func (e *PayloadTooLargeError) Unwrap() error { return ErrInvalid }

// UnseenError says that a tenant, or the whole downstream, was never seen: it has no policy, and
// was never offered a job that was accepted. Nothing was changed. It wraps ErrNotFound.
type UnseenError struct {
	Downstream string
	Tenant     string // "" = the downstream itself was never seen
}

func (e *UnseenError) Error() string {
	if e.Tenant == "" {
		return fmt.Sprintf("downstream %q was never seen", e.Downstream)
	}
	return fmt.Sprintf("tenant %q of downstream %s was never seen", e.Tenant, e.Downstream)
}

func (e *UnseenError) Unwrap() error { return ErrNotFound }
