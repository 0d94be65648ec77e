package buckets

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Never is the RetryAfter of a request that no wait can help: it costs more than the limit.
const Never = time.Duration(-1)

// Decision is the answer to one request. A refusal is an answer, not an error.
type Decision struct {
	// Allowed says whether the request passes. A request of cost 0 always does.
	Allowed bool

	// Limit is the most that can pass at once: the limit of a window, or the capacity.
	Limit int64

	// Remaining is how many requests of cost 1 would pass right now, after this one;
	// 0 ≤ Remaining ≤ Limit. With limit 10 and three passed: 7.
	Remaining int64

	// RetryAfter is the shortest wait, exact to the µs, after which the same request would pass if
	// no other came in between. 0 when it passed, Never when it costs more than Limit.
	RetryAfter time.Duration

	// ResetAfter is the time until the key is as if it had never been used.
	ResetAfter time.Duration
}

// Limiter decides about requests, each for a key (a client, a tenant, an address).
//
// Its methods are safe for concurrent use. An error means that no decision was made:
// the store failed (it wraps ErrStore), or the request makes no sense (it wraps ErrCost,
// ErrTooLarge or ErrKey). Only ErrTooLarge comes with a Decision that is filled in all the same.
type Limiter interface {
	// Allow is AllowN with a cost of 1: the method that most callers want.
	Allow(ctx context.Context, key string) (Decision, error)

	// AllowN asks for n at once: all or none. n = 0 looks, and takes nothing. n < 0 is
	// ErrCost; n beyond the limit can never pass and is ErrTooLarge. A refusal takes nothing.
	AllowN(ctx context.Context, key string, n int64) (Decision, error)

	// Peek answers as AllowN(ctx, key, 0) does, and writes nothing to the store.
	Peek(ctx context.Context, key string) (Decision, error)

	// Reset forgets the key, as if it had never been used.
	Reset(ctx context.Context, key string) error
}

// MaxKeyLen is the longest key that a Limiter takes, in bytes.
const MaxKeyLen = 1024

var (
	// ErrCost is wrapped by the error about a negative cost.
	ErrCost = errors.New("invalid cost")

	// ErrTooLarge is wrapped by every TooLargeError.
	ErrTooLarge = errors.New("cost exceeds the limit")

	// ErrKey is wrapped by the error about an empty or overlong key.
	ErrKey = errors.New("invalid key")

	// ErrStore is wrapped by every error that says that the store did not answer, or answered
	// wrongly. Whether to admit in that case is for the caller to decide.
	ErrStore = errors.New("limiter store failed")
)

// TooLargeError says that a request costs more than can ever pass. It wraps ErrTooLarge.
type TooLargeError struct{ N, Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("cost %d: can never pass a limit of %d: want at most %d", e.N, e.Limit, e.Limit)
}

// Unwrap makes errors.Is(err, ErrTooLarge) true.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

func checkKey(key string) error {
	if key == "" || len(key) > MaxKeyLen {
		return fmt.Errorf("%w: %d bytes long: want 1 to %d", ErrKey, len(key), MaxKeyLen)
	}
	return nil
}

func checkCost(n int64) error {
	if n < 0 {
		return fmt.Errorf("%w: %d: want 0 or more", ErrCost, n)
	}
	return nil
}
