package api

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/seldom"
	"github.com/jobshaper/jobshaper/policing/httplimit"
)

// failures counts requests without a valid token, tells the log of them once a second, and bounds how
// many an address may make.
type failures struct {
	count   prometheus.Counter
	log     *slog.Logger
	lines   seldom.Counter
	limiter *buckets.Memory // by address, or IPv6 network
}

// What an address may guess: a burst, for who is just being set up, and then one a second.
var guesses = buckets.Params{Algorithm: buckets.TokenBucket, Limit: 20, Rate: buckets.PerSecond(1)}

const maxGuessers = 100_000 // addresses that are told apart

func newFailures(reg prometheus.Registerer, log *slog.Logger) (*failures, error) {
	limiter, err := buckets.NewMemory(guesses, buckets.MemoryConfig{MaxKeys: maxGuessers})
	if err != nil {
		return nil, err
	}
	f := &failures{log: log, lines: seldom.Counter{Every: time.Second}, limiter: limiter,
		count: prometheus.NewCounter(prometheus.CounterOpts{Name: "shaper_http_unauthorized_total",
			Help: "HTTP requests without a valid token."})}
	return f, reg.Register(f.count)
}

// note counts a request. It returns how long its address has to wait before the next one.
func (f *failures) note(r *http.Request) time.Duration {
	f.count.Inc()
	addr := httplimit.RemoteAddr(r)
	if n, ok := f.lines.Note(time.Now()); ok {
		f.log.Warn("requests without a valid token", "requests", n, "last_from", addr)
	}
	d, err := f.limiter.Allow(r.Context(), addr)
	if err != nil || d.Allowed {
		return 0
	}
	return d.RetryAfter
}

func (f *failures) close() { f.limiter.Close() }
