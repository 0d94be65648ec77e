package target

import (
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/workers"
)

// What a target's error means to the pool.
const ok, failed, hopeless, throttled = "ok", "error", "hopeless", "throttled"

// meaningOf returns what err means. A throttled job must wait for after, and only its tenant.
func meaningOf(t *testing.T, err error, after time.Duration) string {
	t.Helper()
	var te *workers.ThrottledError
	switch {
	case err == nil:
		return ok
	case errors.Is(err, asynq.SkipRetry):
		return hopeless
	case errors.As(err, &te):
		if te.After != after || te.Downstream {
			t.Errorf("throttled for %v, all tenants %v; want %v, only the job's", te.After, te.Downstream, after)
		}
		return throttled
	}
	return failed
}
