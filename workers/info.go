package workers

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Info is what a handler can learn about the job it runs. Get it with JobFrom.
type Info struct {
	ID         string
	Tenant     string
	Downstream string
	Type       string
	Attempt    int       // which start of the job this is, from 1; strictly increasing, so a downstream can fence on it
	Slot       time.Time // the slot that this start owns, by Redis' clock
	Timeout    time.Duration
}

type infoKey struct{}

type running struct {
	Info
	mu     sync.Mutex
	result []byte
}

// WithJob returns a context in which JobFrom and SetResult work; a Pool makes one for each start,
// and a test may make its own.
func WithJob(ctx context.Context, info Info) context.Context {
	return context.WithValue(ctx, infoKey{}, &running{Info: info})
}

// JobFrom returns the job that the handler of ctx runs.
func JobFrom(ctx context.Context) (Info, bool) {
	r, ok := ctx.Value(infoKey{}).(*running)
	if !ok {
		return Info{}, false
	}
	return r.Info, true
}

// MaxResult is how many bytes of a result are kept.
const MaxResult = 16 << 10

// SetResult keeps b, cut to MaxResult, as the result of the job that the handler of ctx runs; once
// the job is done, the result is known for the retention that its producer gave it, and not kept of
// a job without one. The last call counts. Outside a handler it does nothing.
func SetResult(ctx context.Context, b []byte) {
	r, ok := ctx.Value(infoKey{}).(*running)
	if !ok {
		return
	}
	if len(b) > MaxResult {
		b = b[:MaxResult]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result = append([]byte(nil), b...)
}

// ResultFrom returns what SetResult has kept in ctx so far: for middleware, and for tests of a
// handler.
func ResultFrom(ctx context.Context) []byte {
	r, ok := ctx.Value(infoKey{}).(*running)
	if !ok {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result
}

// MaxThrottle is the longest that a throttled downstream is left alone. A longer wait is taken for
// a mistake: a tenant must not sleep for years.
const MaxThrottle = 24 * time.Hour

// defaultThrottle is how long it is left alone if it does not say how long.
const defaultThrottle = time.Second

// ThrottledError is how a handler says that the downstream asked to slow down: the tenant (or the
// whole downstream) is paused for After, the job goes back to the front, and the attempt is not
// counted.
type ThrottledError struct {
	After      time.Duration // how long to pause; below 1ms counts as 1s, above MaxThrottle as MaxThrottle
	Downstream bool          // pause every tenant, not only the job's
	Err        error         // what was seen; may be nil
}

func (e *ThrottledError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("throttled for %v", e.After)
	}
	return fmt.Sprintf("throttled for %v: %v", e.After, e.Err)
}

func (e *ThrottledError) Unwrap() error { return e.Err }

// Throttled returns a *ThrottledError for the job's tenant.
func Throttled(after time.Duration, err error) error {
	return &ThrottledError{After: after, Err: err}
}
