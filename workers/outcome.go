package workers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/shaper"
)

// errTimeout is the cause of a handler's context that ends because the job's time is over.
var errTimeout = errors.New("job timed out")

// outcome turns what a handler returned, and why its context ended, into what the gate is told.
func outcome(ctx context.Context, grant *queue.Grant, err error) queue.Finish {
	var throttled *ThrottledError
	cause := context.Cause(ctx)
	switch {
	case err == nil, errors.Is(err, asynq.RevokeTask):
		return queue.Finish{Ending: queue.EndOK, Text: string(ResultFrom(ctx))}
	case errors.Is(cause, shaper.ErrStopping):
		return queue.Finish{Ending: queue.EndBack}
	case errors.As(err, &throttled):
		f := queue.Finish{Ending: queue.EndThrottled, Delay: min(throttled.After, MaxThrottle), Text: clean(err.Error())}
		if throttled.Downstream {
			f.Ending = queue.EndThrottledAll
		}
		if f.Delay < time.Millisecond {
			f.Delay = defaultThrottle
		}
		return f
	case errors.Is(err, asynq.SkipRetry):
		return queue.Finish{Ending: queue.EndDead, Text: clean(err.Error())}
	case errors.Is(cause, errTimeout):
		err = fmt.Errorf("timed out after %v: %w", grant.Timeout, err)
	}
	return queue.Finish{Ending: queue.EndError, Delay: backoff(grant.Backoff, grant.Charged, rand.Float64()), Text: clean(err.Error())}
}

// backoff returns how long a job waits after its n-th charged attempt, n from 1: between Min and
// min(Max, Min·2ⁿ⁻¹), where r in [0, 1) is random. The spread keeps jobs that failed together from
// coming back together ("full jitter", Brooker, Exponential Backoff and Jitter, 2015); Min keeps
// them from coming back at once.
func backoff(b shaper.Backoff, n int, r float64) time.Duration {
	top := b.Max
	if shift := n - 1; shift >= 0 && shift < 40 && b.Min < b.Max>>shift {
		top = b.Min << shift
	}
	return b.Min + time.Duration(r*float64(top-b.Min))
}

// maxErrorText is how many bytes of an error are kept.
const maxErrorText = 4 << 10

// clean makes an error text fit for logs, terminals and Redis: valid UTF-8, no control characters
// except line ends and tabs, and not too long.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return -1
	}, s)
	return clip.Bytes(s, maxErrorText)
}
