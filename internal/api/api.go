// Package api is the daemon's HTTP side: producers offer jobs and ask for them, and whoever runs the daemon asks how it is.
//
//	POST /v1/downstreams/{d}/tenants/{t}/jobs        a job, see wire.ReadSpec → 202, or 409, 429, 503 for a refusal
//	GET  /v1/downstreams/{d}/tenants/{t}/jobs/{id}   what is known of it → 200 or 404
//	GET  /healthz                                    200 while the process lives
//	GET  /readyz                                     200 while it can do its work, else 503
//	GET  /metrics                                    for Prometheus
//
// The answer to an offered job, accepted or refused, is a wire.Result. Everything else that goes wrong is a problem of
// RFC 9457 with type, title, status, detail and, where one field is to blame, field. 429 and 503 carry Retry-After, but
// where no wait would help. Where admission rules were asked, 202 and 429 carry LimitHeaders.
//
// Only the downstreams that the daemon knows are served: a job for a mistyped one would wait for ever.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jobshaper/jobshaper/shaper"
)

// Client offers and finds jobs of one downstream; *shaper.Client is one.
type Client interface {
	OfferMany(ctx context.Context, specs []shaper.Spec) []shaper.Outcome
	Find(ctx context.Context, tenant, id string) (shaper.Job, error)
}

// Hitters counts which tenants offer, and are refused, the most; *policing.Hitters is one.
type Hitters interface {
	Offer(tenant string)
	Refuse(tenant string)
}

// Config is set once for a handler.
type Config struct {
	Clients  map[string]Client // by downstream; nil = no jobs are taken here, only health and metrics are told
	Tokens   []string          // who sends one of them may use the API; none = everybody may
	Loopback bool              // the listener is on a loopback address: metrics need no token
	Ready    func(context.Context) error
	Registry *prometheus.Registry // what /metrics tells; the API's own metrics are added

	LimitHeaders LimitHeaders       // how producers are told of the admission rules
	Hitters      map[string]Hitters // by downstream: who counts what tenants offer; nil = nobody

	Log *slog.Logger
}

// New returns the handler. It owns no goroutine.
func New(cfg Config) (http.Handler, error) {
	jobs := jobsHandler{clients: cfg.Clients, headers: cfg.LimitHeaders, hitters: cfg.Hitters, log: cfg.Log}
	var err error
	if jobs.refused, err = newRefusals(cfg.Registry); err != nil {
		return nil, err
	}
	guard := newGuard(cfg.Tokens)
	metrics := promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
	if !cfg.Loopback {
		metrics = guard.protect(metrics)
	}
	mux := http.NewServeMux()
	if cfg.Clients != nil {
		mux.Handle("/v1/downstreams/{downstream}/tenants/{tenant}/jobs", guard.protect(only(http.MethodPost, jobs.offer)))
		mux.Handle("/v1/downstreams/{downstream}/tenants/{tenant}/jobs/{id}", guard.protect(only(http.MethodGet, jobs.show)))
	}
	mux.Handle("/metrics", only(http.MethodGet, metrics.ServeHTTP))
	mux.HandleFunc("/healthz", only(http.MethodGet, func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") }))
	mux.HandleFunc("/readyz", only(http.MethodGet, func(w http.ResponseWriter, r *http.Request) { ready(w, r, cfg.Ready) }))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem{Status: http.StatusNotFound, Detail: "no such path; jobs are at /v1/downstreams/{d}/tenants/{t}/jobs"}.write(w)
	})
	return guard.browsers(mux), nil
}

// ready asks whether the daemon can do its work, for no longer than a load balancer waits.
func ready(w http.ResponseWriter, r *http.Request, ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := ask(ctx); err != nil {
		text := err.Error()
		if errors.Is(err, shaper.ErrStore) {
			text = "the store does not answer" // the reason may name hosts
		}
		w.Header().Set("Retry-After", "1")
		plain(w, http.StatusServiceUnavailable, text)
		return
	}
	plain(w, http.StatusOK, "ready")
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // a client that went away needs no answer
}

// only lets one method pass; GET lets HEAD pass too.
func only(method string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead {
			next(w, r)
			return
		}
		w.Header().Set("Allow", method)
		problem{Status: http.StatusMethodNotAllowed, Detail: r.Method + " is not served here: want " + method}.write(w)
	}
}

// newRefusals makes the count of refused jobs. Every other series about jobs is read from Redis; refusals leave no
// trace there, so each process counts its own.
func newRefusals(reg prometheus.Registerer) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shaper_refused_total",
		Help: "Jobs that this process refused over HTTP, by reason."}, []string{"downstream", "reason"})
	return c, reg.Register(c)
}
